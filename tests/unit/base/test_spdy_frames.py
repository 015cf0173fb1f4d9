"""Frames of SPDY: what one side writes the other reads, in any pieces; garbage is refused."""

import struct
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings, strategies as st

from grange.base.spdy_frames import (
    FRAME_MAX_BYTES,
    FrameReader,
    FrameWriter,
    GoAway,
    RstStream,
    SpdyFrame,
    SpdyPing,
    StreamData,
    SynReply,
    SynStream,
)
from grange.base.spdy_headers import (
    BLOCK_MAX_BYTES,
    DICTIONARY,
    HeaderDecoder,
    HeaderEncoder,
    SpdyError,
)

ids = st.integers(0, 2**31 - 1)
numbers = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(codec="utf-8"), max_size=12)
names = st.text(st.characters(categories=["Ll", "Nd"], codec="ascii"), min_size=1, max_size=12)
headers = st.dictionaries(names, texts, max_size=4)
frames: st.SearchStrategy[SpdyFrame] = st.one_of(
    st.builds(SynStream, ids, headers, st.booleans()),
    st.builds(SynReply, ids, headers, st.booleans()),
    st.builds(RstStream, ids, numbers),
    st.builds(SpdyPing, numbers),
    st.builds(GoAway, ids, numbers),
    st.builds(StreamData, ids, st.binary(max_size=40), st.booleans()),
)
SKIPPED = (
    bytes.fromhex("80030004 0000000c 00000001 01000004 00001000".replace(" ", "")),  # settings
    bytes.fromhex("80030009 00000008 00000001 00010000".replace(" ", "")),  # window update
)


@given(st.lists(frames, max_size=6), st.integers(1, 50), st.data())
@settings(max_examples=200, deadline=None)
def test_frames_cross_in_any_pieces(sent: list[SpdyFrame], size: int, data: st.DataObject) -> None:
    writer, reader = FrameWriter(), FrameReader()
    raw = b""
    for frame in sent:
        raw += data.draw(st.sampled_from(("", *map(bytes.hex, SKIPPED))).map(bytes.fromhex))
        raw += writer.write(frame)
    found = [frame for at in range(0, len(raw), size) for frame in reader.feed(raw[at : at + size])]
    assert found == sent


@given(st.lists(st.binary(max_size=80), max_size=5))
@settings(max_examples=300, deadline=None)
def test_garbage_is_refused_or_waited_for(pieces: list[bytes]) -> None:
    reader = FrameReader()
    with suppress(SpdyError):
        for piece in pieces:
            list(reader.feed(piece))


@given(st.integers(0, 12), st.binary(max_size=60))
@settings(max_examples=300, deadline=None)
def test_garbage_in_control_frames_is_an_error_of_spdy(kind: int, body: bytes) -> None:
    raw = struct.pack(">HHI", 0x8003, kind, len(body)) + body
    with suppress(SpdyError):
        list(FrameReader().feed(raw))


def test_dictionary_is_that_of_the_protocol() -> None:
    assert (len(DICTIONARY), zlib.adler32(DICTIONARY)) == (1423, 0xE3C6A7C2)


def test_large_headers_are_not_decompressed() -> None:
    block = HeaderEncoder().encode({"a": "x" * (50 * BLOCK_MAX_BYTES)})
    assert len(block) < BLOCK_MAX_BYTES
    with pytest.raises(SpdyError, match="more than 16384 bytes"):
        HeaderDecoder().decode(block)


def test_counts_that_lie_are_refused() -> None:
    packed = zlib.compressobj(zdict=DICTIONARY)
    block = packed.compress(struct.pack(">III", 2**32 - 1, 2**31, 0)) + packed.flush()
    with pytest.raises(SpdyError, match="longer than its block"):
        HeaderDecoder().decode(block)


def test_large_frames_are_refused_before_they_arrive() -> None:
    with pytest.raises(SpdyError, match="more than 1048576"):
        list(FrameReader().feed(struct.pack(">II", 1, FRAME_MAX_BYTES + 1)))


def test_other_versions_are_refused() -> None:
    with pytest.raises(SpdyError, match="not version 3 of SPDY: 2"):
        list(FrameReader().feed(bytes.fromhex("8002000600000004" + "00000001")))
