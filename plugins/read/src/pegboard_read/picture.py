"""Pictures: decoded, turned upright, scaled to what a model takes, and re-encoded where they are too heavy.

What cannot be decoded never becomes an image block, because one bad block would make every later request fail.
"""

from __future__ import annotations

import base64
import io
import threading
import warnings
from typing import TYPE_CHECKING

from pegboard.errors import Code, Refusal
from pegboard_files.disk import size_text

from pegboard_read.models import Dimensions, ImageFile

if TYPE_CHECKING:
    from PIL.Image import Image

IMAGE_BYTES = 20 * 1024 * 1024
"""[C] Largest image file."""

LONG_SIDE = 1_568
"""[A] Pixels of the longer side beyond which the service scales down itself."""

PIXELS = 100_000_000
"""[C] Pixels that are decoded at most: a small file can claim to be an enormous picture."""

SENT_BYTES = 500 * 1024
"""[D] Bytes above which a picture is re-encoded as JPEG, at the same pixel size."""

QUALITIES = (85, 70, 55, 40, 25)
"""[C] JPEG qualities that are tried one after the other."""

_AS_IT_IS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}
_FORMATS = ("PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "AVIF")
_ORIENTATION = 0x0112
_lock = threading.Lock()


def is_image(head: bytes) -> bool:
    """Whether bytes begin like a picture of a kind that can be decoded."""
    return (
        head.startswith((b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*"))
        or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")
        or (head[:2] == b"BM" and head[14:18] in (b"\x0c\0\0\0", b"\x28\0\0\0", b"\x6c\0\0\0", b"\x7c\0\0\0"))
        or head[4:12] in (b"ftypavif", b"ftypavis")
    )


def read_picture(raw: bytes, path: str, shown: str) -> tuple[ImageFile, list[str]]:
    """A picture file as the model gets it, and what has to be said about it. Blocking; call it in a thread.

    Raises `Refusal`: io_error with the decoder's complaint, too_large for too many pixels.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with _lock, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            picture = Image.open(io.BytesIO(raw), formats=_FORMATS)
        width, height = picture.size
        if width * height > PIXELS:
            raise _too_many(shown, f"{width}x{height} pixels")
        frames = getattr(picture, "n_frames", 1)
        kind = picture.format or ""
        if kind == "JPEG":
            picture.draft("RGB", (LONG_SIDE, LONG_SIDE))
        picture.load()
        turned = picture.getexif().get(_ORIENTATION, 1) != 1
        upright = ImageOps.exif_transpose(picture) if turned else picture
    except Image.DecompressionBombError:
        raise _too_many(shown, "far too many pixels") from None
    except UnidentifiedImageError:
        raise damaged(shown, "image", "its content is not a known picture format") from None
    except (OSError, SyntaxError, ValueError, EOFError, MemoryError, IndexError, TypeError) as error:
        raise damaged(shown, "image", str(error) or type(error).__name__) from None
    scaled = _scaled(upright)
    untouched = scaled is picture and (width, height) == picture.size
    data, media = (raw, _AS_IT_IS[kind]) if untouched and _light(raw, kind) else _encoded(scaled, kind)
    notes = []
    if scaled.size != (width, height) and scaled.size != (height, width):
        notes.append(f"The picture has {width}x{height} pixels and was scaled to {scaled.width}x{scaled.height}.")
    if frames > 1:
        notes.append(f"The picture is animated ({frames} frames); what is seen is its first frame.")
    sizes = Dimensions(
        originalWidth=width, originalHeight=height, displayWidth=scaled.width, displayHeight=scaled.height
    )
    text = base64.b64encode(data).decode("ascii")
    return ImageFile(filePath=path, base64=text, type=media, originalSize=len(raw), dimensions=sizes), notes


def _light(raw: bytes, kind: str) -> bool:
    return kind in _AS_IT_IS and len(raw) <= SENT_BYTES


def _scaled(picture: Image) -> Image:
    from PIL.Image import Resampling

    longest = max(picture.size)
    if longest <= LONG_SIDE:
        return picture
    size = (max(1, round(picture.width * LONG_SIDE / longest)), max(1, round(picture.height * LONG_SIDE / longest)))
    if picture.mode not in ("L", "RGB", "RGBA"):
        picture = picture.convert("RGBA" if _transparent(picture) else "RGB")
    return picture.resize(size, Resampling.LANCZOS)


def _encoded(picture: Image, kind: str) -> tuple[bytes, str]:
    """PNG where that is light enough, else the best JPEG that is."""
    if kind != "JPEG":
        mode = "RGBA" if _transparent(picture) else "RGB"
        data = _saved(picture if picture.mode in ("L", mode) else picture.convert(mode), "PNG")
        if len(data) <= SENT_BYTES:
            return data, "image/png"
    flat = on_white(picture)
    data = b""
    for quality in QUALITIES:
        data = _saved(flat, "JPEG", quality=quality)
        if len(data) <= SENT_BYTES:
            break
    return data, "image/jpeg"


def on_white(picture: Image) -> Image:
    """The picture without transparency, as JPEG needs it."""
    from PIL import Image

    if not _transparent(picture):
        return picture.convert("RGB")
    layer = picture.convert("RGBA")
    ground = Image.new("RGB", layer.size, "white")
    ground.paste(layer, mask=layer.getchannel("A"))
    return ground


def _transparent(picture: Image) -> bool:
    return picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info


def _saved(picture: Image, kind: str, **options: int) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def _too_many(shown: str, what: str) -> Refusal:
    return Refusal(
        Code.TOO_LARGE,
        f"{shown} has {what}; at most {PIXELS:,} are decoded.",
        hint="Scale it down with a shell command first.",
    )


def damaged(shown: str, kind: str, complaint: str) -> Refusal:
    """The refusal of a file that its decoder does not take."""
    return Refusal(
        Code.IO_ERROR,
        f"{shown} is not a readable {kind}: {complaint}.",
        hint="Check with a shell command (file, xxd) what it really is, or get an undamaged copy.",
    )


def too_heavy(shown: str, kind: str, size: int, limit: int, hint: str) -> Refusal:
    """The refusal of a file over the size limit of its kind."""
    return Refusal(
        Code.TOO_LARGE, f"{shown} is a {kind} of {size_text(size)}; the limit is {size_text(limit)}.", hint=hint
    )
