# The C types of kernel_clean.py, for the copy of it that is compiled. Which copy, and how: see setup.py.
cimport cython

ctypedef const unsigned char const_uchar

@cython.locals(value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong)
cdef (long long, Py_ssize_t) _varint(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(bits=cython.ulonglong, size=cython.Py_ssize_t)
cdef Py_ssize_t _varint_size(long long value) noexcept

@cython.locals(bits=cython.ulonglong)
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) noexcept

@cython.locals(
    length=cython.longlong, body=cython.Py_ssize_t, stop=cython.Py_ssize_t, timestamp_delta=cython.longlong,
    behind_time=cython.Py_ssize_t, offset_delta=cython.longlong, key_length=cython.longlong,
    key_at=cython.Py_ssize_t, value_length=cython.longlong,
)
cdef (
    Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t, long long, long long, Py_ssize_t
) _record(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

cdef int _check_region(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count
) except -1

cdef class _KeyTable:
    cdef Py_ssize_t _mask, _count, _keys_size  # first, to share a line of the cache with where the slots are
    cdef long long[::1] _slots
    cdef unsigned char[::1] _keys

    @cython.locals(index=cython.Py_ssize_t, start=cython.Py_ssize_t, same=cython.Py_ssize_t)
    cdef Py_ssize_t _find(
        self, Py_hash_t digest, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t length
    ) noexcept

    @cython.locals(slot=cython.Py_ssize_t, is_known=cython.bint, index=cython.Py_ssize_t)
    cdef int _set(
        self, Py_hash_t digest, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t length, long long offset
    ) except -1

    @cython.locals(before=cython.longlong[::1], start=cython.Py_ssize_t, index=cython.Py_ssize_t, part=cython.int)
    cdef int _grow(self) except -1

cdef class KeyOffsets:
    cdef list _tables

    @cython.locals(digest=cython.Py_hash_t, table=_KeyTable)
    cpdef get(self, bytes key)

@cython.locals(
    view=const_uchar[::1], text=cython.p_uchar, grown=cython.longlong, digest=cython.Py_hash_t, table=_KeyTable,
    index=cython.Py_ssize_t, _body=cython.Py_ssize_t, _time=cython.longlong, _behind_time=cython.Py_ssize_t,
    offset_delta=cython.longlong, key_at=cython.Py_ssize_t, key_length=cython.longlong, _value_length=cython.longlong,
    stop=cython.Py_ssize_t,
)
cpdef note_keys(
    bytes data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count,
    long long base_offset, KeyOffsets latest,
)

@cython.locals(
    view=const_uchar[::1], text=cython.p_uchar, digest=cython.Py_hash_t, table=_KeyTable,
    kept_count=cython.Py_ssize_t, tombstones=cython.Py_ssize_t, smallest=cython.longlong, largest=cython.longlong,
    index=cython.Py_ssize_t, _body=cython.Py_ssize_t, timestamp_delta=cython.longlong, _behind_time=cython.Py_ssize_t,
    offset_delta=cython.longlong, key_at=cython.Py_ssize_t, key_length=cython.longlong, value_length=cython.longlong,
    stop=cython.Py_ssize_t,
)
cpdef judge(
    bytes data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count,
    long long base_offset, KeyOffsets latest, bint drops_tombstones, unsigned char[::1] kept,
)

@cython.locals(
    room=cython.Py_ssize_t, size=cython.Py_ssize_t, index=cython.Py_ssize_t, start=cython.Py_ssize_t,
    shifted=cython.longlong, body=cython.Py_ssize_t, timestamp_delta=cython.longlong,
    behind_time=cython.Py_ssize_t, _offset_delta=cython.longlong, _key_at=cython.Py_ssize_t,
    _key_length=cython.longlong, _value_length=cython.longlong, stop=cython.Py_ssize_t,
)
cpdef copy_kept(
    unsigned char[::1] out, const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end,
    Py_ssize_t record_count, const unsigned char[::1] kept, long long timestamp_shift,
)
