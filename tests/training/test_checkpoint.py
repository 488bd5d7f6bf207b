"""Training checkpoints that hold something else than a run does."""

import pytest
import torch

from gocor.models import create_model
from gocor.training.checkpoint import start_from, start_network

from ..models.test_variants import nvidia_names
from .toy import MODEL, toy_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder and checkpoint of a run of one step."""
    folder = tmp_path_factory.mktemp("run")
    toy_run(folder, steps=1)
    return folder, torch.load(folder / "last.pt", weights_only=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": 3}, "it does not name its network"),
        ({"optimizer": None}, "is damaged: "),
        ({"progress": {"steps": 1}}, "is damaged: .*steps"),
        ({"progress": {"step": "1"}}, "is damaged: the progress of a run must be numbers"),
        ({"network": {}}, "is damaged: Error.* in loading state_dict"),
        ({"average": 3}, "is damaged: "),
        ({"totals": torch.zeros(99)}, "is damaged: "),
        ({"rng": None}, "is damaged: "),
    ],
)
def test_a_run_does_not_resume_from_it(run, changes, message):
    folder, content = run
    torch.save(content | changes, folder / "last.pt")
    with pytest.raises(ValueError, match=message) as error:
        toy_run(folder, steps=2, resume=True)
    assert "\n" not in str(error.value)
    assert "last.pt" in str(error.value)


def test_a_run_does_not_start_from_it(tmp_path):
    torch.save({"format": "gocor-training-1", "model": MODEL, "average": {"a": torch.ones(1)}}, tmp_path / "last.pt")
    with pytest.raises(ValueError, match=r"last\.pt holds no state dict"):
        start_from(create_model(MODEL), tmp_path / "last.pt")


def test_a_published_checkpoint_may_have_the_suffix_of_a_run(tmp_path):
    options = {"width": 0.125, "local.radius": 2}
    torch.save({"state_dict": nvidia_names(create_model("pwcnet", options))}, tmp_path / "pwc_net.pt")
    network = create_model("pwcnet-gocor", options)
    assert "of pwcnet; 30 of matching.0 to matching.4 start anew" in start_network(network, tmp_path / "pwc_net.pt")


def test_weights_that_ship_are_a_start():
    network = create_model("recurrent-gocor", {"fine": True})
    assert "tensors of recurrent-gocor; 66 of fine start anew" in start_network(network, "default")
    with pytest.raises(ValueError, match="no weights of pwcnet are part of gocor: give a checkpoint to start from"):
        start_network(create_model("pwcnet", {"width": 0.125}), "default")
