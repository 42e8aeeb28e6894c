"""Edits of every kind of file, the text of refusals, and the gates in both positions."""

from __future__ import annotations

import os
import stat

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import given as given_data
from hypothesis import strategies as st
from pegboard_files import FileViews

from .conftest import edit, edited, given, read


@pytest.mark.parametrize(
    "raw, old, new, after",
    [
        (b"begin\r\n  x;\r\nend.\r\n", "  x;\nend.", "  x;\n  y;\nend.", b"begin\r\n  x;\r\n  y;\r\nend.\r\n"),
        (b"echo a\n", "echo a", "echo a\r\necho b", b"echo a\necho b\n"),
        (b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n", "hello", "hello2", b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\n"),
        (b"// caf\xe9 \xe0\n$a = 1;\n", "$a = 1;", "$a = 2;", b"// caf\xe9 \xe0\n$a = 2;\n"),
        ("# 中文\nx = 1\n".encode("gbk"), "x = 1", "x = 2", "# 中文\nx = 2\n".encode("gbk")),
        ("# 中文注释文字\n".encode("gbk"), "中文注释", "新的", "# 新的文字\n".encode("gbk")),
        ("\ufeffé\r\nb\r\n".encode("utf-16-le"), "b", "c\nd", "\ufeffé\r\nc\r\nd\r\n".encode("utf-16-le")),
        (b'log("done");\n', '"done"', '"$& $$ $1 $` $\' \\1 \\g<0>"', b'log("$& $$ $1 $` $\' \\1 \\g<0>");\n'),
        (b"a.b(c)[d]*\naxb\n", "a.b(c)[d]*", "Z", b"Z\naxb\n"),
        ("l'heure d’été\n".encode(), "l'heure", "l’heure", "l’heure d’été\n".encode()),
        (b"a\nb", "a", "A", b"A\nb"),
        (b"a\nb", "b", "b\n", b"a\nb\n"),
        (b"a\nb\n", "b\n", "b", b"a\nb"),
        (b"a  \nb\n", "a  ", "a   ", b"a   \nb\n"),
        (b"x\ty\n", "\t", "    ", b"x    y\n"),
        (b"a\nb\r\nc\n", "b", "b\nB", b"a\nb\r\nB\r\nc\n"),
        ("e\u0301 é\n".encode(), "é", "e", "e\u0301 e\n".encode()),
        ("👍🏽 👍\n".encode(), "👍🏽", "ok", "ok 👍\n".encode()),
        (b"one\ntwo\nthree\n", "two\n", "", b"one\nthree\n"),
    ],
)
async def test_only_what_is_meant_changes(bench, raw, old, new, after):
    async with bench:
        outcome, found = await edited(bench, raw, old, new)
        assert not outcome.is_error, outcome.text
        assert found == after


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given_data(st.binary(max_size=40), st.sampled_from([b"\n", b"\r\n"]), st.binary(max_size=40))
async def test_whatever_the_bytes_around_they_stay(peg_session, head, end, tail):
    raw = head + end + b"MARK = 1" + end + tail
    bench = peg_session(mode="acceptEdits")
    async with bench:
        outcome, found = await edited(bench, raw, "MARK = 1", "MARK = 22")
        expected = raw if outcome.is_error else head + end + b"MARK = 22" + end + tail
        assert found == expected
        assert outcome.code in (None, "not_read", "ambiguous", "not_found", "invalid_input", "precondition_failed")


@pytest.mark.parametrize(
    "raw, old, says",
    [
        (
            b"def f(x):\n    return  x+1\n",
            "    return x+1",
            ["line 2", "2\t    return  x+1", "blanks", "'    return  x+1'"],
        ),
        (b"def f(x):\n\treturn x\n", "def f(x):\n    return x", ["line 1", "blanks", "\\t"]),
        ("say “hi” now\n".encode(), 'say "hi" now', ["line 1", "quotes", "“hi”"]),
        (b"alpha = 1\nbeta = 2\n", "1\talpha = 1\n2\tbeta = 2", ["line numbers"]),
        (b"value = compute(alpha, beta)\n", "value = compute(alpha, gamma)", ["line 1", "beta"]),
        (b"<system-reminder>\n", "&lt;system-reminder>", ["Use <"]),
        (b"x = 2\n", "x = 1", ["new_string is already there, on line 1"]),
        (b"nothing like it\n", "zzzzqqq()", ["does not occur"]),
        (b"a\nb\n", "b\nc\nd", ["does not occur"]),
    ],
)
async def test_a_text_that_is_not_found(bench, raw, old, says):
    async with bench:
        outcome, found = await edited(bench, raw, old, "x = 2")
        assert (outcome.code, outcome.status) == ("not_found", "not_started")
        for text in says:
            assert text in outcome.text, outcome.text
        assert found == raw


async def test_the_same_failing_call_is_called_a_repeat(bench):
    async with bench:
        first, _ = await edited(bench, b"return  x\n", "return x", "return y")
        again = await edit(bench, "a.txt", "return x", "return y")
        other = await edit(bench, "a.txt", "return x", "return z")
        assert "same call as before" not in first.text
        assert "same call as before" in again.text
        assert "same call as before" not in other.text


@pytest.mark.parametrize(
    "raw, old, new, code",
    [
        (b"x\n", "x", "x", "invalid_input"),
        (b"a\nb\n", "a\nb", "a\r\nb", "invalid_input"),
        (b"x\n", "", "y", "invalid_input"),
        (b"x\n", "x", "\ud83d", "invalid_input"),
        ("это комментарий на русском\n".encode("cp1251"), "это", "日本", "invalid_input"),
        (b"caf\xe9\n", "é", "e", "invalid_input"),
    ],
)
async def test_what_cannot_be_done_changes_nothing(bench, raw, old, new, code):
    async with bench:
        (bench.folder / "a.txt").write_bytes(raw)
        before = (bench.folder / "a.txt").stat().st_mtime_ns
        await read(bench, "a.txt")
        outcome = await edit(bench, "a.txt", old, new)
        assert (outcome.code, outcome.status, outcome.effects) == (code, "not_started", [])
        assert (bench.folder / "a.txt").read_bytes() == raw
        assert (bench.folder / "a.txt").stat().st_mtime_ns == before
        assert not (bench.session.directory / "checkpoints").exists()


async def test_empty_old_string(bench):
    async with bench:
        assert not (await edit(bench, "x/new.txt", "", "a\r\nb")).is_error
        assert (bench.folder / "x/new.txt").read_bytes() == b"a\r\nb"
        (bench.folder / "empty").touch()
        assert (await edit(bench, "empty", "", "x\n")).code == "not_read"
        await read(bench, "empty")
        assert not (await edit(bench, "empty", "", "x\n")).is_error
        assert (bench.folder / "empty").read_bytes() == b"x\n"


async def test_mode_links_and_other_names(bench):
    async with bench:
        folder = bench.folder
        (folder / "x.sh").write_text("echo 1\n")
        (folder / "x.sh").chmod(0o2750)
        await read(bench, "x.sh")
        await edit(bench, "x.sh", "1", "2")
        assert stat.S_IMODE((folder / "x.sh").stat().st_mode) == 0o2750
        (folder / "canon").mkdir()
        (folder / "canon/s.py").write_text("enabled = False\n")
        (folder / "s.py").symlink_to("canon/s.py")
        (folder / "chain.py").symlink_to("s.py")
        await read(bench, "chain.py")
        outcome = await edit(bench, "chain.py", "False", "True")
        assert [effect.target for effect in outcome.effects] == [str(folder / "canon/s.py")]
        assert (folder / "s.py").is_symlink() and (folder / "chain.py").is_symlink()
        assert not (await edit(bench, "canon/s.py", "True", "None")).is_error, "one file, one view"
        (folder / "hard").write_text("one\n")
        os.link(folder / "hard", folder / "other")
        await read(bench, "hard")
        await edit(bench, "hard", "one", "two")
        assert (folder / "other").read_text() == "two\n"


async def test_touching_is_no_change(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("x\n")
        await read(bench, "a.txt")
        path.unlink()
        path.write_text("x\n")
        os.utime(path, (2e9, 2e9))
        assert not (await edit(bench, "a.txt", "x", "y")).is_error


async def test_a_file_that_is_gone(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("x\n")
        await read(bench, "a.txt")
        (bench.folder / "a.txt").unlink()
        assert (await edit(bench, "a.txt", "x", "y")).code == "not_found"


async def test_a_link_that_is_turned_after_the_decision(peg_session):
    """What was judged is what is written: the link leads elsewhere by the time the call runs."""
    from pegboard.hooks import hook

    class Turner:
        @hook
        async def peg_answer(self, question, ctx):
            from pegboard.host import Choice, Reply

            link.unlink()
            link.symlink_to(secret)
            return Reply(Choice.ONCE)

    bench = peg_session(hooks=[Turner()])
    async with bench:
        secret = bench.outside / "bashrc"
        secret.write_text("one\n")
        (bench.folder / "harmless").write_text("one\n")
        link = bench.folder / "link"
        link.symlink_to("harmless")
        await bench.call("Read", {"file_path": str(link)}, id="r")
        await edit(bench, "link", "one", "two")
        assert secret.read_text() == "one\n"


async def test_relaxed_gate(peg_session):
    bench = peg_session(mode="acceptEdits", settings={"files.gate": "relaxed"}, ask=["Read(./asked.txt)"])
    async with bench:
        (bench.folder / "a.txt").write_text("one\ntwo\ntwo\n")
        outcome = await edit(bench, "a.txt", "one", "1")
        assert not outcome.is_error and "has not been read" in outcome.text
        assert (await edit(bench, "a.txt", "two", "2")).code == "ambiguous"
        write = {"file_path": str(bench.folder / "a.txt"), "content": "x"}
        assert (await bench.call("Write", write, id="w")).code == "not_read"
        await read(bench, "a.txt")
        (bench.folder / "a.txt").write_text("1\nthree\n")
        outcome = await edit(bench, "a.txt", "1", "one")
        assert not outcome.is_error and "changed since" in outcome.text
        (bench.folder / "asked.txt").write_text("one\n")
        assert (await edit(bench, "asked.txt", "one", "1")).code == "not_read"
        (bench.outside / "b.txt").write_text("one\n")
        outside = {"file_path": str(bench.outside / "b.txt"), "old_string": "one", "new_string": "1"}
        assert (await bench.call("Edit", outside, id="o")).code == "not_read"


async def test_each_agent_has_its_own_views_and_all_share_the_file(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("one\n")
        await read(bench, "a.txt")
        from pegboard.call import Call

        call = Call(id="child", tool="Edit", input=given(bench, "a.txt", "one", "1"))
        (refused,) = await bench.session.run_calls([call], "child-1")
        assert refused.code == "not_read"
        views = await bench.session.owners.get(FileViews, bench.session.place("child-1"))
        assert views.get(str(bench.folder / "a.txt")) is None


async def test_the_result_shows_the_change_and_the_patch(bench):
    async with bench:
        raw = "".join(f"line {number}\n" for number in range(1, 101)).encode()
        outcome, _ = await edited(bench, raw, "line 50\n", "fifty\nand more\n")
        assert "47\tline 47\n48\tline 48\n49\tline 49\n50\tfifty\n51\tand more\n52\tline 51" in outcome.text
        (hunk,) = outcome.data["structuredPatch"]
        assert (hunk["oldStart"], hunk["oldLines"], hunk["newStart"], hunk["newLines"]) == (47, 7, 47, 8)
        assert outcome.data["originalFile"] == raw.decode()
        many = await edit(bench, "a.txt", "line 1", "row 1", replace_all=True)
        assert "Also changed, from line" in many.text


async def test_large_files(bench):
    async with bench:
        path = bench.folder / "a.txt"
        path.write_text("".join(f"number {number}\n" for number in range(1, 200_001)))
        await read(bench, "a.txt", offset=100, limit=5)
        outcome = await edit(bench, "a.txt", "number 100\n", "x\n")
        assert not outcome.is_error and "originalFile" not in outcome.data
        with open(path, "ab") as file:
            file.truncate(101 * 1024 * 1024)
        assert (await edit(bench, "a.txt", "number 101\n", "x\n")).code == "too_large"


async def test_binary_files_are_refused(peg_session):
    bench = peg_session(mode="acceptEdits", settings={"files.gate": "relaxed"})
    async with bench:
        (bench.folder / "a").write_bytes(b"x\0y")
        assert (await edit(bench, "a", "x", "y")).code == "precondition_failed"


async def test_a_name_that_looks_the_same_is_told(bench):
    async with bench:
        (bench.folder / "e\u0301.txt").write_text("x\n")
        outcome = await edit(bench, "\u00e9.txt", "x", "y")
        assert outcome.code == "not_found" and "Unicode form" in outcome.text


async def test_parallel_edits_of_one_file(bench):
    async with bench:
        path = bench.folder / "n.txt"
        path.write_text("".join(f"{number}\n" for number in range(1, 201)))
        await read(bench, "n.txt")
        edits = [("Edit", given(bench, "n.txt", f"\n{n}\n", f"\nE{n}\n")) for n in (20, 60, 100, 140, 180)]
        assert not any(outcome.is_error for outcome in await bench.calls(edits))
        lines = path.read_text().splitlines()
        assert len(lines) == 200 and [line for line in lines if line.startswith("E")] == [
            "E20",
            "E60",
            "E100",
            "E140",
            "E180",
        ]
