"""An object store in this process that speaks as much of S3 as Hadoop's s3a, Arrow and deltalake say to it.

It checks no signatures, and keeps all in memory.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

__all__ = ["ObjectStore", "new_object_store"]

NAMESPACE = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
KEYS_MAX = 1_000


@dataclass
class ObjectStore:
    """Its buckets are there when they are named first.

    Attributes:
        port: on the loopback.
        objects: by bucket and key: `lake/table/part-0`.
        refuses_writes: answers 403 to whoever changes something.
    """

    port: int
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    refuses_writes: bool = False

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def storage_options(self) -> dict[str, str]:
        """For deltalake."""
        keys = {"access_key_id": "someone", "secret_access_key": "swordfish", "region": "us-east-1"}
        return {"endpoint": self.endpoint, "allow_http": "true", **keys}

    def arrow_uri(self, path: str) -> str:
        """As Arrow finds `bucket/key`, without settings of its process."""
        return f"s3://someone:swordfish@{path}?endpoint_override=127.0.0.1%3A{self.port}&scheme=http&region=us-east-1"

    def keys(self, prefix: str) -> list[str]:
        """`bucket/key` of what is there."""
        with self.lock:
            return sorted(key for key in self.objects if key.startswith(prefix))

    def put(self, path: str, data: bytes) -> None:
        with self.lock:
            self.objects[path] = data


@contextmanager
def new_object_store() -> Iterator[ObjectStore]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    store = _Handler.stores[server.server_port] = ObjectStore(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        del _Handler.stores[store.port]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stores: dict[int, ObjectStore] = {}  # noqa: RUF012 - one for all, by port

    def do_GET(self) -> None:
        store, path, query = self._asked()
        if "location" in query:
            self._answer_xml(f"<LocationConstraint {NAMESPACE}>us-east-1</LocationConstraint>")
        elif not _is_object(path):
            self._answer_xml(_listing(store, path.rstrip("/"), query))
        else:
            self._answer_object(store, path)

    def do_HEAD(self) -> None:
        store, path, _ = self._asked()
        if _is_object(path):
            self._answer_object(store, path)
        else:
            self._answer(200)

    def do_PUT(self) -> None:
        store, path, query = self._asked()
        data = self._body()
        if store.refuses_writes:
            return self._refuse(403, "AccessDenied")
        if source := self.headers.get("x-amz-copy-source"):
            with store.lock:
                found = store.objects.get(unquote(source).lstrip("/"))
            if found is None:
                return self._refuse(404, "NoSuchKey")
            data = found
        with store.lock:
            if "uploadId" in query:
                store.uploads[query["uploadId"]][int(query["partNumber"])] = data
            elif _is_object(path):
                if self._is_hindered(store.objects.get(path)):
                    return self._refuse(412, "PreconditionFailed")
                store.objects[path] = data
        if source:
            return self._answer_xml(f"<CopyObjectResult><ETag>{_tag(data)}</ETag></CopyObjectResult>")
        return self._answer(200, headers={"ETag": _tag(data)})

    def do_POST(self) -> None:
        store, path, query = self._asked()
        body = self._body()
        if store.refuses_writes:
            return self._refuse(403, "AccessDenied")
        bucket, _, key = path.partition("/")
        where = f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key>"
        if "uploads" in query:
            with store.lock:
                number = f"upload-{len(store.uploads)}"
                store.uploads[number] = {}
            return self._answer_xml(
                f"<InitiateMultipartUploadResult>{where}<UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
            )
        if "uploadId" in query:
            with store.lock:
                if self._is_hindered(store.objects.get(path)):
                    return self._refuse(412, "PreconditionFailed")
                parts = store.uploads[query["uploadId"]]
                data = store.objects[path] = b"".join(parts[number] for number in sorted(parts))
            return self._answer_xml(
                f"<CompleteMultipartUploadResult>{where}<ETag>{_tag(data)}</ETag></CompleteMultipartUploadResult>"
            )
        named = [one.text or "" for one in ElementTree.fromstring(body).iter() if one.tag.endswith("Key")]
        with store.lock:
            for one in named:
                store.objects.pop(f"{bucket}/{one}", None)
        return self._answer_xml(f"<DeleteResult {NAMESPACE}></DeleteResult>")

    def do_DELETE(self) -> None:
        store, path, query = self._asked()
        if store.refuses_writes:
            return self._refuse(403, "AccessDenied")
        with store.lock:
            if "uploadId" in query:
                store.uploads.pop(query["uploadId"], None)
            else:
                store.objects.pop(path, None)
        return self._answer(204)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as it is called
        """Says nothing."""

    # Parts of a request.

    def _asked(self) -> tuple[ObjectStore, str, Mapping[str, str]]:
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        server = cast(ThreadingHTTPServer, self.server)
        return self.stores[server.server_port], unquote(parts.path).lstrip("/"), query

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = bytearray()
            while size := int(self.rfile.readline().split(b";")[0], 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            body = bytes(data)
        else:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_signed_in_chunks = "STREAMING" in (self.headers.get("x-amz-content-sha256") or "")
        return _unchunked(body) if is_signed_in_chunks else body

    def _is_hindered(self, there: bytes | None) -> bool:
        """Whether a condition of the request does not hold."""
        wanted = self.headers.get("If-Match")
        return (self.headers.get("If-None-Match") == "*" and there is not None) or (
            wanted is not None and (there is None or _tag(there) != wanted)
        )

    # Answers.

    def _answer_object(self, store: ObjectStore, path: str) -> None:
        with store.lock:
            data = store.objects.get(path)
        if data is None:
            return self._refuse(404, "NoSuchKey")
        headers = {"ETag": _tag(data), "Last-Modified": formatdate(usegmt=True), "Accept-Ranges": "bytes"}
        wanted = self.headers.get("Range")
        if wanted is None:
            return self._answer(200, data, headers)
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else len(data) - int(last)
        end = min(int(last) + 1 if first and last else len(data), len(data))
        if start >= len(data):
            return self._refuse(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return self._answer(206, data[start:end], headers)

    def _answer_xml(self, text: str) -> None:
        self._answer(200, f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode(), {"Content-Type": "application/xml"})

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _answer(self, status: int, data: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _is_object(path: str) -> bool:
    """Else it is a bucket."""
    return bool(path.partition("/")[2])


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _unchunked(body: bytes) -> bytes:
    """What AWS's clients send as chunks with signatures, and with a check sum after the last."""
    data = bytearray()
    at = 0
    while True:
        line_end = body.index(b"\r\n", at)
        size = int(body[at:line_end].split(b";")[0], 16)
        if not size:
            return bytes(data)
        data += body[line_end + 2 : line_end + 2 + size]
        at = line_end + 2 + size + 2


def _listing(store: ObjectStore, bucket: str, query: Mapping[str, str]) -> str:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after") or query.get("marker", "")
    count_max = min(int(query.get("max-keys", KEYS_MAX)), KEYS_MAX)
    with store.lock:
        sizes = {key: (len(data), _tag(data)) for key, data in store.objects.items()}
    entries: dict[str, str] = {}
    for path in sorted(sizes):
        of_bucket, _, key = path.partition("/")
        if of_bucket != bucket or not key.startswith(prefix) or key <= after:
            continue
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            common = prefix + rest.partition(delimiter)[0] + delimiter
            if common > after:
                entries[common] = f"<CommonPrefixes><Prefix>{escape(common)}</Prefix></CommonPrefixes>"
        else:
            size, tag = sizes[path]
            entries[key] = (
                f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>{escape(tag)}</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            )
    shown = sorted(entries)[:count_max]
    is_truncated = len(shown) < len(entries)
    more = f"<NextContinuationToken>{escape(shown[-1])}</NextContinuationToken>" if is_truncated and shown else ""
    return (
        f"<ListBucketResult {NAMESPACE}><Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
        f"<KeyCount>{len(shown)}</KeyCount><MaxKeys>{count_max}</MaxKeys>"
        f"<IsTruncated>{str(is_truncated).lower()}</IsTruncated>{more}"
        f"{''.join(entries[key] for key in shown)}</ListBucketResult>"
    )
