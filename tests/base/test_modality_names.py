"""Words for modalities."""

from __future__ import annotations

from cimtool.base.modality_names import (
    item_names,
    layer_matches,
    name_of,
    one_row,
    sizes_text,
    spellings,
    way_marks,
    way_names,
)


def test_words() -> None:
    assert way_names(("text", "image"))["video_to_text"] == "image to text"
    assert way_marks(("text", "image")) == {"text_to_video": "t>i", "video_to_text": "i>t"}
    assert way_marks(("text", "title"))["text_to_video"] == "text to title"
    assert item_names(("text", "image")) == ("texts", "images")
    assert item_names(("audio", "text")) == ("audio rows", "texts")
    assert sizes_text((1500, 3), ("text", "image"), "x") == "1,500 texts x 3 images"


def test_a_users_own_names() -> None:
    assert spellings("video", "_mu") == ("video_mu", "image_mu")
    assert name_of("video", ("text", "image")) == "image"
    assert (one_row("video"), one_row("image")) == ("a video row", "an image row")
    for pattern in ("image.mu", "image.*", "image*", "video.mu", "*.mu", "*"):
        assert layer_matches("video.mu", pattern), pattern
        assert layer_matches("text.mu", pattern) == (pattern[0] == "*")
    assert layer_matches("image.*", "image.*")
    assert not layer_matches("video.mu", "images.mu")
