"""Pictures, PDFs and notebooks: real ones, broken ones and false ones."""

from __future__ import annotations

import base64
import io
import json
import random
import zlib

import pytest
from PIL import Image

from .conftest import read, view_of


def picture_of(outcome):
    (block,) = [block for block in outcome.text if block["type"] == "image"]
    data = base64.b64decode(block["source"]["data"])
    return Image.open(io.BytesIO(data)), data, block["source"]["media_type"]


def saved(image, kind, **options):
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


NOISE = Image.frombytes("RGB", (1200, 900), random.Random(7).randbytes(1200 * 900 * 3))


@pytest.mark.parametrize("kind, media", [("PNG", "image/png"), ("JPEG", "image/jpeg"), ("GIF", "image/gif")])
async def test_a_small_picture_goes_as_it_is(bench, kind, media):
    async with bench:
        raw = saved(Image.new("RGB", (40, 30), "red"), kind)
        (bench.folder / "a.data").write_bytes(raw)
        outcome = await read(bench, "a.data")
        _, data, said = picture_of(outcome)
        assert (data, said) == (raw, media)
        assert outcome.data["file"]["dimensions"]["originalWidth"] == 40
        assert (await view_of(bench, "a.data")).view == "full"


@pytest.mark.parametrize("kind", ["WEBP", "BMP", "TIFF"])
async def test_other_formats(bench, kind):
    async with bench:
        (bench.folder / "a").write_bytes(saved(Image.new("RGB", (40, 30), "red"), kind))
        image, _, media = picture_of(await read(bench, "a"))
        assert image.size == (40, 30) and media in ("image/png", "image/webp")


@pytest.mark.parametrize("size", [(9600, 8), (8, 9600), (3000, 3000)])
async def test_large_pictures_are_scaled_and_it_is_said(bench, size):
    async with bench:
        (bench.folder / "a.png").write_bytes(saved(Image.new("RGB", size, "blue"), "PNG"))
        outcome = await read(bench, "a.png")
        image, _, _ = picture_of(outcome)
        assert max(image.size) == 1568
        assert f"{size[0]}x{size[1]}" in outcome.plain()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "BMP"])
async def test_heavy_pictures_become_jpeg_of_the_same_size(bench, kind):
    async with bench:
        options = {"quality": 98} if kind == "JPEG" else {}
        (bench.folder / "a").write_bytes(saved(NOISE, kind, **options))
        image, data, media = picture_of(await read(bench, "a"))
        assert (image.size, media) == ((1200, 900), "image/jpeg") and len(data) <= 500 * 1024


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16", "F"])
async def test_every_colour_mode(bench, mode):
    async with bench:
        image = Image.new("RGB", (2000, 20), "red").convert("L" if mode in ("I;16",) else mode if mode != "LA" else "L")
        image = image.convert(mode)
        (bench.folder / "a").write_bytes(saved(image, "TIFF"))
        shown, _, _ = picture_of(await read(bench, "a"))
        assert shown.size == (1568, 16)


async def test_turned_and_animated_pictures(bench):
    async with bench:
        exif = Image.Exif()
        exif[0x0112] = 6
        (bench.folder / "a.jpg").write_bytes(saved(Image.new("RGB", (40, 30)), "JPEG", exif=exif))
        assert picture_of(await read(bench, "a.jpg"))[0].size == (30, 40)
        frames = [Image.new("RGB", (20, 20), colour) for colour in ("red", "blue")]
        frames[0].save(bench.folder / "a.gif", save_all=True, append_images=frames[1:])
        assert "2 frames" in (await read(bench, "a.gif")).plain()


PNG = saved(NOISE, "PNG")


def claims(width, height):
    """A PNG of a few bytes that says it has this size."""
    head = b"IHDR" + width.to_bytes(4, "big") + height.to_bytes(4, "big") + b"\x08\x02\0\0\0"
    data = b"IDAT" + zlib.compress(b"\0" * 100)

    def chunk(body):
        return (len(body) - 4).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")

    return b"\x89PNG\r\n\x1a\n" + chunk(head) + chunk(data) + chunk(b"IEND")


@pytest.mark.parametrize(
    "name, raw, code",
    [
        ("a.png", b"\x89PNG\r\n\x1a\n" + random.Random(7).randbytes(2048), "io_error"),
        ("a.jpg", b"not an image", "io_error"),
        ("a.png", b"", "io_error"),
        ("a.png", PNG[: len(PNG) // 2], "io_error"),
        ("a.dat", PNG[:100], "io_error"),
        ("a.jpg", saved(NOISE, "JPEG")[:5000], "io_error"),
        ("a.gif", b"GIF89a" + b"\xff" * 50, "io_error"),
        ("a.webp", b"RIFF\x10\0\0\0WEBPVP8 " + b"\0" * 20, "io_error"),
        ("a.png", claims(12_000, 12_000), "too_large"),
        ("a.png", claims(2**31 - 1, 2**31 - 1), "too_large"),
        ("a.png", claims(500, 500), "io_error"),
        ("a.png", claims(0, 5), "io_error"),
    ],
)
async def test_bad_pictures_never_become_blocks(bench, name, raw, code):
    async with bench:
        (bench.folder / name).write_bytes(raw)
        outcome = await read(bench, name)
        assert (outcome.code, outcome.status) == (code, "not_started"), outcome.plain()
        assert isinstance(outcome.text, str)


async def test_a_picture_over_the_limit(bench):
    async with bench:
        with open(bench.folder / "a.png", "wb") as file:
            file.write(PNG)
            file.truncate(21 * 1024 * 1024)
        assert (await read(bench, "a.png")).code == "too_large"


async def test_text_that_begins_like_a_picture(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("BMW is a car\n")
        (bench.folder / "a.svg").write_text("<svg/>\n")
        assert (await read(bench, "a.txt")).text == "1\tBMW is a car"
        assert (await read(bench, "a.svg")).text == "1\t<svg/>"


def pdf_of(*texts):
    """A small PDF with one line of text on each page."""
    kids = " ".join(f"{3 + 2 * index} 0 R" for index in range(len(texts)))
    objects = ["<</Type/Catalog/Pages 2 0 R>>", f"<</Type/Pages/Kids[{kids}]/Count {len(texts)}>>"]
    for index, text in enumerate(texts):
        font = "<</Font<</F<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>>>>>"
        objects.append(
            f"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]/Resources{font}/Contents {4 + 2 * index} 0 R>>"
        )
        stream = f"BT /F 12 Tf 10 50 Td ({text}) Tj ET"
        objects.append(f"<</Length {len(stream)}>>\nstream\n{stream}\nendstream")
    out, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n".encode()
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}trailer\n<</Size {len(objects) + 1}/Root 1 0 R>>\n"
    return out + f"{end}startxref\n{len(out)}\n%%EOF\n".encode()


async def test_a_pdf_comes_as_text_and_pictures(bench):
    async with bench:
        (bench.folder / "a").write_bytes(pdf_of("Hello there", "Second page"))
        outcome = await read(bench, "a")
        assert [block["type"] for block in outcome.text] == ["text", "image", "text", "image"]
        assert "Page 1 of 2\nHello there" in outcome.plain() and "Second page" in outcome.plain()
        assert outcome.data["type"] == "pdf" and "picture" not in outcome.data["file"]["pages"][0]
        part = await read(bench, "a", pages="2")
        assert part.data["type"] == "parts" and "Hello" not in part.plain() and "Pages 2-2 of 2" in part.plain()


@pytest.mark.parametrize("pages", ["", "x", "0", "3-1", "1-", "-2", "1,2", "1-21", "99999999"])
async def test_bad_pages(bench, pages):
    async with bench:
        (bench.folder / "a.pdf").write_bytes(pdf_of("x"))
        assert (await read(bench, "a.pdf", pages=pages)).code == "invalid_input"


async def test_pages_of_what_is_no_pdf(bench):
    async with bench:
        (bench.folder / "a.txt").write_text("x")
        assert (await read(bench, "a.txt", pages="1")).code == "invalid_input"


@pytest.mark.parametrize(
    "raw",
    [
        b"hello",
        b"",
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n",
        b"%PDF-1.4\n" + random.Random(7).randbytes(500),
        pdf_of(),
    ],
)
async def test_bad_pdfs_never_become_blocks(bench, raw):
    async with bench:
        (bench.folder / "a.pdf").write_bytes(raw)
        outcome = await read(bench, "a.pdf")
        assert outcome.code == "io_error" and isinstance(outcome.text, str) and "PDF" in outcome.text


async def test_an_encrypted_pdf_says_so(bench):
    async with bench:
        raw = pdf_of("x")
        encrypt = (
            b"/Encrypt<</Filter/Standard/V 1/R 2/P -4/O<" + b"00" * 32 + b">/U<" + b"11" * 32 + b">>>/ID[<00><00>]"
        )
        (bench.folder / "a.pdf").write_bytes(raw.replace(b"/Root 1 0 R", b"/Root 1 0 R" + encrypt))
        outcome = await read(bench, "a.pdf")
        assert outcome.code == "io_error" and "password" in outcome.text


def book(cells, **more):
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5, **more})


CODE = {
    "cell_type": "code",
    "id": "c1",
    "metadata": {},
    "execution_count": 7,
    "source": ["import a\n", "a.b"],
    "outputs": [
        {"output_type": "stream", "name": "stdout", "text": ["hi\n", "there\n"]},
        {
            "output_type": "execute_result",
            "execution_count": 7,
            "metadata": {},
            "data": {
                "text/plain": ["<Figure>"],
                "text/html": "<b>",
                "image/png": base64.b64encode(b"x" * 3000).decode(),
            },
        },
        {"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["\x1b[31mE\x1b[0m: v"]},
    ],
}


async def test_notebook_cells_and_outputs(bench):
    async with bench:
        (bench.folder / "n.ipynb").write_text(book([CODE]))
        outcome = await read(bench, "n.ipynb")
        assert '<cell id="c1" type="code" count="7">\nimport a\na.b\n</cell>' in outcome.text
        assert "hi\nthere" in outcome.text and "[image/png, 2.9 KB]" in outcome.text and "E: v" in outcome.text
        assert "\x1b" not in outcome.text and "<b>" not in outcome.text
        assert (await view_of(bench, "n.ipynb")).view == "full"


async def test_notebooks_without_ids_and_of_old_formats(bench):
    async with bench:
        plain = {"cell_type": "markdown", "metadata": {}, "source": "a"}
        (bench.folder / "n.ipynb").write_text(book([plain, plain], nbformat_minor=4))
        outcome = await read(bench, "n.ipynb")
        assert '"cell-0"' in outcome.text and '"cell-1"' in outcome.text and "[" not in outcome.text
        old = {
            "nbformat": 3,
            "nbformat_minor": 0,
            "metadata": {"name": ""},
            "worksheets": [{"cells": [{"cell_type": "code", "language": "python", "input": "x = 1", "outputs": []}]}],
        }
        (bench.folder / "old.ipynb").write_text(json.dumps(old))
        assert "x = 1" in (await read(bench, "old.ipynb")).text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"nbformat": 4}', '{"nbformat": 4, "cells": [1]}', '{"nbformat": 4, "cells": [{}]}']
)
async def test_broken_notebooks(bench, text):
    async with bench:
        (bench.folder / "n.ipynb").write_text(text)
        outcome = await read(bench, "n.ipynb")
        assert outcome.code == "io_error" and "notebook" in outcome.text


async def test_a_notebook_that_breaks_its_schema_is_shown_with_a_word(bench):
    async with bench:
        cell = {"cell_type": "code", "metadata": {}, "source": "x", "outputs": [], "id": "a b c"}
        (bench.folder / "n.ipynb").write_text(book([cell]))
        outcome = await read(bench, "n.ipynb")
        assert not outcome.is_error and "does not follow its format" in outcome.text


async def test_long_notebooks_are_shown_in_parts(peg_session):
    bench = peg_session(settings={"read.max_tokens": 1000})
    async with bench:
        cells = [
            {"cell_type": "markdown", "id": f"m{number}", "metadata": {}, "source": "word " * 100}
            for number in range(20)
        ]
        (bench.folder / "n.ipynb").write_text(book(cells))
        outcome = await read(bench, "n.ipynb")
        shown = len(outcome.data["file"]["cells"])
        assert 0 < shown < 20 and f"offset {shown + 1}" in outcome.text
        assert (await view_of(bench, "n.ipynb")).view == "partial"
        part = await read(bench, "n.ipynb", offset=shown + 1, limit=2)
        assert [cell["id"] for cell in part.data["file"]["cells"]] == [f"m{shown}", f"m{shown + 1}"]
        assert (await view_of(bench, "n.ipynb")).view == "range"


async def test_unchanged_media_are_not_sent_again(bench):
    async with bench:
        (bench.folder / "a.png").write_bytes(saved(Image.new("RGB", (4, 4)), "PNG"))
        (bench.folder / "a.pdf").write_bytes(pdf_of("x"))
        (bench.folder / "n.ipynb").write_text(book([CODE]))
        for name in ("a.png", "a.pdf", "n.ipynb"):
            await read(bench, name)
            assert (await read(bench, name)).data["type"] == "file_unchanged"
