"""Names that look alike are found only where they are the same name in another form."""

from __future__ import annotations

import os

from pegboard_files.names import alike, similar


def test_alike_in_any_component(tmp_path):
    (tmp_path / "re\u0301sume\u0301").mkdir()
    (tmp_path / "re\u0301sume\u0301" / "it’s.txt").touch()
    assert alike(str(tmp_path / "résumé" / "it's.txt")) == [str(tmp_path / "re\u0301sume\u0301" / "it’s.txt")]
    assert alike(str(tmp_path / "other" / "it's.txt")) == []


def test_links_are_never_alike(tmp_path):
    os.symlink("/etc/hostname", tmp_path / "a’b")
    assert alike(str(tmp_path / "a'b")) == []


def test_similar_names(tmp_path):
    for name in ("config.toml", "Config.yaml", "README.md", "unrelated"):
        (tmp_path / name).touch()
    assert similar(str(tmp_path / "config.tml"))[0] == "config.toml"
    assert "README.md" in similar(str(tmp_path / "readme.md"))
    assert similar(str(tmp_path / "none" / "x")) == []
