"""Data sets as they are written on a command line."""

import pytest

from gocor.data.datasets.entries import parse_entries, parse_entry

from .samples import write_sample


def test_entries():
    plain = parse_entry("sintel=/data/a=b,c")
    assert (plain.name, plain.folder, plain.options, plain.share) == ("sintel", "/data/a=b,c", {}, None)
    final = parse_entry("sintel:pass=final,share=0.5=/data/sintel")
    assert (final.options, final.share, final.label) == ({"render": "final"}, 0.5, "sintel:pass=final,share=0.5")
    things = parse_entry("things:pass=clean,side=right,direction=backward,split=train", "/data")
    assert (things.name, things.folder) == ("flyingthings3d", "/data")
    assert things.options == {"render": "clean", "camera": "right", "direction": "into_past", "split": "TRAIN"}
    assert parse_entry("chairs:split=train=x").options == {"split": "train"}
    assert parse_entry("eth3d:interval=7=x").options == {"interval": 7}


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["sintel"], r"sintel has no folder: write sintel=FOLDER, or set flow_root"),
        (["sintle=x"], r"no data set is named 'sintle'; the nearest are sintel"),
        (["sintel:pas=final=x"], r"sintel has no option 'pas'; there are render, share"),
        (["sintel:pass=dirty=x"], r"sintel: pass must be one of clean, final, got 'dirty'"),
        (["sintel:share=0=x"], r"share must be a positive number, got '0'"),
        (["eth3d:interval=many=x"], r"eth3d: interval must be an integer, got 'many'"),
        (["sintel:pass=final"], r"has no folder"),
        (["=x"], r"given as NAME=FOLDER or NAME:OPTION"),
        (["sintel=x", "sintel=x"], r"sintel of x is given twice"),
        (["sintel=x", "sintel:pass=final,share=2=x"], r"a share to every data set or to none, sintel has none"),
    ],
)
def test_wrong_entries(entries, message):
    with pytest.raises(ValueError, match=message):
        parse_entries(entries)


def test_options_reach_the_reader(tmp_path):
    root = write_sample("flyingthings3d", tmp_path)
    forward, backward = (parse_entry(f"things:direction={way}={root}").open() for way in ("forward", "backward"))
    assert forward.names != backward.names or (forward[0].flow != backward[0].flow).any()
