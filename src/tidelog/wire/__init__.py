"""Bytes to values and back: messages as declarations, frames, and frames out of a stream."""

from tidelog.wire._choose import compiled_split_produce
from tidelog.wire.api import APIS, Api, ApiKey, api
from tidelog.wire.compile import Piece, decode, encode, encode_pieces
from tidelog.wire.connection import FrameReceiver
from tidelog.wire.frame import (
    NO_TOKEN_YET,
    ConsistencyState,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request,
    encode_response,
)
from tidelog.wire.schema import field, message, struct

__all__ = [
    "APIS",
    "NO_TOKEN_YET",
    "Api",
    "ApiKey",
    "ConsistencyState",
    "FrameReceiver",
    "Piece",
    "RequestHeader",
    "api",
    "compiled_split_produce",
    "decode",
    "decode_request_header",
    "decode_response_header",
    "encode",
    "encode_pieces",
    "encode_request",
    "encode_response",
    "field",
    "message",
    "struct",
]
