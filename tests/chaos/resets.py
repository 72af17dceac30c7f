"""TCP as a box in the middle sees it: which connection a packet is of, and how to break it off. IPv4 only."""

from __future__ import annotations

import struct
from typing import NamedTuple

TCP = 6
SYN, RST, ACK = 0x02, 0x04, 0x10
_TTL = 64
_IP = struct.Struct("!BBHHHBBH4s4s")
_SEGMENT = struct.Struct("!HHIIBBHHH")


class Connection(NamedTuple):
    """Both its ends, address and port of each, in an order of their own: the same for both directions."""

    one: bytes
    other: bytes


class Segment(NamedTuple):
    """What a reset takes of a packet. Sequence numbers wrap at 2^32."""

    source: bytes
    target: bytes
    source_port: int
    target_port: int
    sequence: int
    acknowledged: int
    flags: int
    length: int

    @property
    def connection(self) -> Connection:
        ends = sorted((self.source + _port(self.source_port), self.target + _port(self.target_port)))
        return Connection(*ends)

    @property
    def is_opening(self) -> bool:
        """The first packet of a connection."""
        return self.flags & (SYN | ACK) == SYN


def segment_of(packet: bytes) -> Segment | None:
    """None for what is not TCP."""
    if packet[9] != TCP:
        return None
    begin = (packet[0] & 0x0F) * 4
    source_port, target_port, sequence, acknowledged, offset, flags, *_ = _SEGMENT.unpack_from(packet, begin)
    length = len(packet) - begin - (offset >> 4) * 4
    return Segment(packet[12:16], packet[16:20], source_port, target_port, sequence, acknowledged, flags, length)


def reset_of(segment: Segment) -> bytes:
    """The packet that tells whoever sent a segment that there is no such connection (RFC 9293, 3.5.2)."""
    following = segment.sequence + segment.length + bool(segment.flags & SYN)
    is_acknowledging = bool(segment.flags & ACK)
    return _packet_of(
        Segment(
            segment.target,
            segment.source,
            segment.target_port,
            segment.source_port,
            sequence=segment.acknowledged if is_acknowledging else 0,
            acknowledged=0 if is_acknowledging else following % (1 << 32),
            flags=RST if is_acknowledging else RST | ACK,
            length=0,
        )
    )


def broken_off(segment: Segment) -> bytes:
    """What comes to whom a segment was for in its place: its sender has broken off."""
    return _packet_of(segment._replace(acknowledged=0, flags=RST, length=0))


def _packet_of(segment: Segment) -> bytes:
    tcp = _SEGMENT.pack(
        segment.source_port,
        segment.target_port,
        segment.sequence,
        segment.acknowledged,
        _SEGMENT.size // 4 << 4,
        segment.flags,
        0,
        0,
        0,
    )
    pseudo = segment.source + segment.target + struct.pack("!BBH", 0, TCP, len(tcp))
    tcp = tcp[:16] + struct.pack("!H", checksum(pseudo + tcp)) + tcp[18:]
    ip = _IP.pack(0x45, 0, _IP.size + len(tcp), 0, 0, _TTL, TCP, 0, segment.source, segment.target)
    return ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:] + tcp


def checksum(data: bytes) -> int:
    """That of the internet protocols; over what has its checksum in it, 0."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def _port(number: int) -> bytes:
    return number.to_bytes(2, "big")
