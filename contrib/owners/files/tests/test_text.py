"""Bytes as text and back: whatever the encoding and the line ends, an edit changes what it means and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pegboard.errors import Code, Refusal
from pegboard_files.text import decode, encode_whole, ending_of, matches, substitute

MIXED = st.lists(st.tuples(st.text("ab", max_size=3), st.sampled_from(["\n", "\r\n"])), min_size=2, max_size=8)
UNICODE = {
    "utf-8": b"",
    "utf-8-mark": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
}
LETTERS = st.text(st.sampled_from("ab \tx=é日𝄞e\u0301\x0b\u2028$&\\"), max_size=6)
ENDS = st.sampled_from(["\n", "\r\n", "\r", ""])
LINES = st.lists(st.tuples(LETTERS, ENDS), max_size=8).map(lambda items: "".join(a + b for a, b in items))


def encoded(name: str, text: str) -> bytes:
    return UNICODE[name] + text.encode(name.removesuffix("-mark"))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(sorted(UNICODE)), LINES)
def test_what_is_decoded_is_what_is_there(name, text):
    raw = encoded(name, text)
    found = decode(raw)
    assert found is not None and found.sure and found.intact
    assert found.text == text
    assert found.mark + found.text.encode(found.encoding) == raw
    assert "\r\n" not in found.plain or "\r\r\n" in text


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(sorted(UNICODE)), LINES, LINES, LINES, LETTERS.filter(bool), LINES)
def test_only_the_changed_span_differs(name, before, left, right, middle, new):
    """``left middle right`` is shown to the model; it sends that as LF text with a new middle."""
    text = before + left + middle + right
    raw = encoded(name, text)
    found = decode(raw)
    assert found is not None
    old = middle
    places = matches(found, old)
    assume(len(places) == 1 and "\r" not in new and old != new)
    data, after = substitute(found, raw, old, new, places)
    at = places[0]
    assert after.plain.replace("\r", "") == (found.plain[:at] + new + found.plain[at + len(old) :]).replace("\r", "")
    kept = text.index(middle)
    head, tail = encoded(name, text[:kept]), encoded(name, text[kept + len(middle) :])[len(found.mark) :]
    assert data.startswith(head)
    assert data.endswith(tail)
    assert decode(data) is not None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.text("ab", max_size=3), st.sampled_from(["\n", "\r\n"])), min_size=2, max_size=8), st.data()
)
def test_lines_that_an_edit_only_quotes_keep_their_ends(lines, data):
    """In a file of mixed line ends, context lines in old_string and new_string stay byte for byte."""
    raw = "".join(a + b for a, b in lines).encode() + b"UNIQUE\r\n" + "".join(a + b for a, b in lines).encode()
    found = decode(raw)
    assert found is not None
    at = found.plain.index("UNIQUE")
    start = data.draw(st.integers(0, at))
    end = data.draw(st.integers(at + 6, len(found.plain)))
    old = found.plain[start:end]
    new = old.replace("UNIQUE", "changed\nand longer")
    places = matches(found, old)
    assume(len(places) == 1)
    result, _ = substitute(found, raw, old, new, places)
    assert result.replace(b"changed\r\nand longer", b"UNIQUE") == raw


@pytest.mark.parametrize(
    "raw, ending",
    [
        (b"a\nb", "\n"),
        (b"a\r\nb\r\n", "\r\n"),
        (b"a\rb\r", "\r"),
        (b"a\r\nb\n", "mixed"),
        (b"a\rb\n", "\n"),
        (b"a", ""),
    ],
)
def test_line_ends(raw, ending):
    assert ending_of(raw.decode()) == ending


@pytest.mark.parametrize(
    "raw, old, new, after",
    [
        (b"a\r\nb\r\n", "a\nb", "a\nc\nb", b"a\r\nc\r\nb\r\n"),
        (b"a\nb\n", "a", "a\r\nc", b"a\nc\nb\n"),
        (b"a\rb\r", "a\nb", "a\nc\nb", b"a\rc\rb\r"),
        (b"a\r\nb\nc\n", "a\nb", "A\nB", b"A\r\nB\nc\n"),
        (b"a\nb\r\nc\r\n", "b", "b\nB", b"a\nb\r\nB\r\nc\r\n"),
        (b"a\r\nb", "b", "b\n", b"a\r\nb\r\n"),
        (b"a", "a", "a\r\nb", b"a\r\nb"),
        (b"p\rq\n", "p\rq", "P\rq", b"P\rq\n"),
        (b"a \nb\t\n", "a ", "A  ", b"A  \nb\t\n"),
        (b"a\nb\nc\n", "b\n", "", b"a\nc\n"),
    ],
)
def test_line_ends_of_an_edit(raw, old, new, after):
    found = decode(raw)
    assert found is not None
    assert substitute(found, raw, old, new, matches(found, old))[0] == after


SAMPLES = {
    "gb18030": "# 这是一个用来测试编码识别的中文注释\nprint('结果')\n",
    "cp950": "# 這是一個用來測試編碼識別的繁體中文註解，結果如下\n",
    "cp932": "# これは日本語のコメントです\nprint('テスト')\n",
    "euc_jp": "# これは日本語のコメントです\nprint('テスト')\n",
    "cp949": "# 이것은 한국어 주석입니다 결과를 출력합니다\n",
    "cp1251": "# это комментарий на русском языке\nprint('результат')\n",
    "koi8_r": "# это комментарий на русском языке\nprint('результат')\n",
}


@pytest.mark.parametrize("encoding", SAMPLES)
def test_legacy_encodings_are_recognised_and_kept(encoding):
    text = SAMPLES[encoding]
    raw = text.encode(encoding)
    found = decode(raw)
    assert found is not None and found.intact
    assert (found.encoding, found.text, found.sure) == (encoding, text, True)
    word = text.split("\n")[0][4:8]
    data, _ = substitute(found, raw, word, word[::-1], matches(found, word))
    assert data == text.replace(word, word[::-1]).encode(encoding)


@pytest.mark.parametrize(
    "raw", [b"<?php // caf\xe9 \xe0\n$a = 1;\n", "# 中文\nx = 1\n".encode("gbk"), b"na\xefve\n$a = 1;\n"]
)
def test_a_guess_lets_only_ascii_change(raw):
    found = decode(raw)
    assert found is not None and found.intact and not found.sure
    data, _ = substitute(found, raw, "1", "2", matches(found, "1")) if b"1" in raw else (raw, found)
    assert data == raw.replace(b"1", b"2")
    strange = next(char for char in found.text if char > "\x7f")
    with pytest.raises(Refusal) as refused:
        substitute(found, raw, strange, "?", matches(found, strange)[:1])
    assert refused.value.code == Code.INVALID_INPUT


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([b"x = 1\n", b"\nk=v\n"]))
def test_no_bytes_are_lost_in_whatever_is_no_unicode(noise, line):
    """An ASCII edit keeps every other byte, or the file is one that cannot be changed."""
    raw = line + noise
    found = decode(raw)
    if found is None or not found.intact:
        return
    old = line.decode().strip()
    places = matches(found, old)
    if len(places) != 1:
        return
    try:
        data, _ = substitute(found, raw, old, old + "2", places)
    except Refusal:
        return
    assert data == raw.replace(line.strip(), line.strip() + b"2", 1)


@pytest.mark.parametrize("size", [511, 999, 1023, 2047, 4095, 8191, 65535])
def test_characters_on_any_boundary(size):
    found = decode(b"a" * size + "ç日\nx\n".encode())
    assert found is not None and found.encoding == "utf-8" and found.text.endswith("ç日\nx\n")


def test_binary_and_odd_data():
    assert decode(b"\x7fELF\0\0\1") is None
    assert decode(bytes(range(1, 32)) * 10 + b"\xff") is None
    late = decode(b"a" * 9000 + b"\0b")
    assert late is not None and not late.intact and "\0" not in late.text
    damaged = decode("ein schöner Text, größer".encode() + b"\xff\n")
    assert damaged is not None and not damaged.intact and "\ufffd" in damaged.text
    half = decode(b"\xff\xfea\0b")
    assert half is not None and not half.intact
    bare = decode("plain text\n".encode("utf-16-le"))
    assert bare is not None and bare.encoding == "utf-16-le" and bare.text == "plain text\n"
    assert decode(b"") is not None


def test_what_an_encoding_lacks_is_refused():
    raw = SAMPLES["cp1251"].encode("cp1251")
    found = decode(raw)
    assert found is not None
    with pytest.raises(Refusal, match="has no"):
        substitute(found, raw, "print", "日本", matches(found, "print"))
    with pytest.raises(Refusal):
        encode_whole("日本", found)
