"""Files of `torch.save`: no code runs, and packed ones are checked first."""

import io
import os
import pickle
import zipfile

import pytest
import torch

from gocor.models.pickles import load_pickle


class Payload:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def saved(content, **options):
    stream = io.BytesIO()
    torch.save(content, stream, **options)
    return stream.getvalue()


@pytest.mark.parametrize("old", [False, True])
def test_tensors_are_read_and_code_is_not_run(tmp_path, old):
    path, marker = tmp_path / "a.pth", tmp_path / "marker"
    path.write_bytes(saved({"a": torch.arange(3)}, _use_new_zipfile_serialization=not old))
    assert load_pickle(path)["a"].tolist() == [0, 1, 2]
    for data in (
        saved({"a": Payload(marker)}, _use_new_zipfile_serialization=not old),
        pickle.dumps(Payload(marker)),
    ):
        path.write_bytes(data)
        with pytest.raises(ValueError, match=r"a\.pth is damaged or not a checkpoint, or it holds more than tensors"):
            load_pickle(path)
        assert not marker.exists()


def test_a_packed_checkpoint_beyond_the_limit(tmp_path, monkeypatch):
    data, path = saved({"a": torch.zeros(10**6)}), tmp_path / "a.pth"
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
    monkeypatch.setenv("GOCOR_MAX_BYTES", "1M")
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"a\.pth takes 4,0\d\d,\d\d\d bytes, the limit is 1,048,576"):
        load_pickle(path)


def test_a_length_that_is_not_there(tmp_path):
    (tmp_path / "a.pth").write_bytes(b"\x80\x02X\xff\xff\xff\x7fabc.")  # text of 2 GiB
    with pytest.raises(ValueError, match="is damaged or not a checkpoint"):
        load_pickle(tmp_path / "a.pth")
