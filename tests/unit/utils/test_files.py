"""Files of others: regular, of bounded size and depth."""

import os

import pytest

from rlframe.utils.files import is_inside, parse_json, read_bytes, read_json, read_lines


def test_a_regular_file_is_read_up_to_its_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_bytes(path, 5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, wanted at most 4"):
        read_bytes(path, 4)
    os.truncate(path, 1 << 42)  # holes: no disk has this much
    with pytest.raises(OSError, match="wanted at most"):
        read_json(path)


def test_a_pipe_a_device_and_a_directory_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for name in ("pipe", "zeros", "."):
        with pytest.raises(OSError, match="no regular file"):
            read_bytes(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 100_000, "deeper"),
        ("[" * 150 + "]" * 150, "deeper than 100"),
        ('{"a": NaN}', "NaN"),
        ('["\\ud800"]', "half a character"),
        ('{"\\udfff": 1}', "half a character"),
        ("9" * 5000, "digits"),
        ("[1e999]", "beyond what a float holds"),
    ],
)
def test_json_that_nobody_could_write_again_is_refused(text, says):
    with pytest.raises(ValueError, match=says):
        parse_json(text)
    assert parse_json('{"a": [1, "\u00e9"]}') == {"a": [1, "\u00e9"]}


def test_lines_end_before_one_without_end(tmp_path):
    (tmp_path / "lines").write_bytes(b"a\nb\n" + b"c" * 100)
    assert list(read_lines(tmp_path / "lines", 50)) == [b"a\n", b"b\n"]


def test_links_are_followed_to_tell_what_is_inside(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for name, target in (("in", "file"), ("out", tmp_path), ("up", "../x"), ("self", "self")):
        (run / name).symlink_to(target)
    inside = {name for name in ("in", "out", "up", "self", "not there") if is_inside(run / name, run)}
    assert inside == {"in", "self", "not there"}


def test_infinity_is_a_number_of_configs_alone():
    assert parse_json('{"clip": Infinity}', infinite=True) == {"clip": float("inf")}
    for text, infinite in (("[Infinity]", False), ("[NaN]", True)):
        with pytest.raises(ValueError, match="which JSON has not"):
            parse_json(text, infinite=infinite)
