"""Which codecs serve: the compiled kernel if it was built, or the generated ones, as `TIDELOG_PURE=1` demands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.base.compiled import compiled_twins

if TYPE_CHECKING:
    from collections.abc import Callable, Sized
    from typing import Any, Protocol

    from tidelog.base.ports import Buffer
    from tidelog.wire.schema import Layout

    class Codec(Protocol):
        """Of a message in one version. What it refuses, by None, is for the generated codec to do, or to refuse."""

        def __init__(self, layout: Layout, version: int) -> None: ...

        def decode(
            self, view: memoryview, position: int, elements_max: int, ignores_trailing_bytes: bool, /
        ) -> Any | None: ...

        def encode(self, message: object, header: bytes | None, /) -> list[Buffer | Sized] | None: ...

    class ReadRequestHeader(Protocol):
        """Returns (header, where the body starts), or None: it is to be read without the kernel."""

        def __call__(
            self,
            view: Buffer,
            flexible_from: dict[int, int],
            senders: dict[bytes, Any],
            make: Callable[[tuple[Any, ...]], Any],
            /,
        ) -> tuple[Any, int] | None: ...

    class SplitProduce(Protocol):
        """Returns (all bytes but those of the next two, correlation id, the batch), or None: it is to be decoded."""

        def __call__(self, view: memoryview, /) -> tuple[bytes, int, memoryview] | None: ...


__all__ = ["CompiledCodec", "compiled_read_request_header", "compiled_split_produce"]

_compiled = compiled_twins(
    "tidelog.wire",
    __file__.removesuffix("_choose.py"),
    ("kernel_codec",),
    "codec",
    "each request costs a fifth more",
)
CompiledCodec: type[Codec] | None = _compiled[0].Codec if _compiled else None
compiled_read_request_header: ReadRequestHeader | None = _compiled[0].read_request_header if _compiled else None
compiled_split_produce: SplitProduce | None = _compiled[0].split_produce if _compiled else None
