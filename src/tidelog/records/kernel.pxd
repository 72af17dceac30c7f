# The C types of kernel.py, for the copy of it that is compiled. Which copy, and how: see setup.py.
cimport cython

@cython.locals(value=cython.ulonglong, shift=cython.int, byte=cython.ulonglong)
cdef (long long, Py_ssize_t) _varint(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t bytes_max
) noexcept

@cython.locals(
    length=cython.longlong, stop=cython.Py_ssize_t, timestamp_delta=cython.longlong, offset_delta=cython.longlong,
    key_at=cython.Py_ssize_t, key_length=cython.longlong, value_at=cython.Py_ssize_t, value_length=cython.longlong,
    header_count=cython.longlong,
)
cdef (
    long long, long long, Py_ssize_t, long long, Py_ssize_t, long long, long long, Py_ssize_t, Py_ssize_t
) _record(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end) noexcept

@cython.locals(
    key_at=cython.Py_ssize_t, key_length=cython.longlong, value_at=cython.Py_ssize_t, value_length=cython.longlong,
)
cdef (Py_ssize_t, long long, Py_ssize_t, long long, Py_ssize_t) _header(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t stop
) noexcept

@cython.locals(
    _=cython.longlong, _key_at=cython.Py_ssize_t, _key_length=cython.longlong, _value_at=cython.Py_ssize_t,
    _value_length=cython.longlong,
)
cdef Py_ssize_t _skip_headers(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t stop, long long header_count
) noexcept

cdef int _check_region(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count
) except -1

cdef int _check_end(Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count) except -1

@cython.locals(
    size=cython.Py_ssize_t, index=cython.Py_ssize_t, base_offset=cython.longlong, length=cython.longlong,
    delta=cython.longlong, before=cython.Py_ssize_t, before_offset=cython.longlong,
)
cpdef follow_offsets(const unsigned char[::1] data, Py_ssize_t position, long long next_offset, long long gap_end_offset)

@cython.locals(value=cython.longlong, index=cython.Py_ssize_t)
cdef long long _integer(const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t size) noexcept

@cython.locals(
    size=cython.Py_ssize_t, attributes=cython.longlong, delta=cython.longlong, base_timestamp=cython.longlong,
    record_count=cython.longlong, delta_min=cython.longlong, delta_max=cython.longlong, largest=cython.longlong,
    last=cython.longlong, keyless=cython.Py_ssize_t, is_dense=cython.bint, base_offset=cython.longlong,
    leader_epoch=cython.longlong, crc=cython.longlong, producer_id=cython.longlong, epoch=cython.longlong,
    sequence=cython.longlong, newest=cython.longlong, magic=cython.longlong,
)
cpdef read_plain(const unsigned char[::1] data)

@cython.locals(
    largest=cython.longlong, largest_at=cython.longlong, last=cython.longlong, keyless=cython.Py_ssize_t,
    headers=cython.longlong, is_dense=cython.bint, seeks_runs=cython.bint, run_end=cython.longlong, seek_from=cython.Py_ssize_t,
    patience=cython.Py_ssize_t, index=cython.Py_ssize_t,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, key_at=cython.Py_ssize_t,
    key_length=cython.longlong, value_at=cython.Py_ssize_t, _value_length=cython.longlong,
    header_count=cython.longlong, headers_at=cython.Py_ssize_t, stop=cython.Py_ssize_t,
)
cpdef walk(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count,
    long long last_offset_delta, long long timestamp_delta_min, long long timestamp_delta_max,
)

@cython.locals(
    index=cython.Py_ssize_t, _=cython.longlong, last=cython.longlong,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, key_at=cython.Py_ssize_t,
    key_length=cython.longlong, value_at=cython.Py_ssize_t, value_length=cython.longlong,
    header_count=cython.longlong, headers_at=cython.Py_ssize_t, stop=cython.Py_ssize_t,
    header_key_at=cython.Py_ssize_t, header_key_length=cython.longlong,
    header_value_at=cython.Py_ssize_t, header_value_length=cython.longlong,
    source=bytes, at=cython.Py_ssize_t, header_key=bytes, offset=cython.longlong, timestamp=cython.longlong,
)
cpdef unpack(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count,
    long long last_offset_delta, long long timestamp_delta_min, long long timestamp_delta_max,
    long long base_offset, long long base_timestamp, long long timestamp_scale, object leader_epoch, object make,
    object topic, object partition, object timestamp_type,
)

@cython.locals(
    wants_offsets=cython.bint, wants_timestamps=cython.bint, wants_keys=cython.bint, wants_values=cython.bint,
    wants_headers=cython.bint, fits=cython.bint, row_end=cython.Py_ssize_t,
    key_used=cython.Py_ssize_t, value_used=cython.Py_ssize_t, header_row=cython.Py_ssize_t,
    header_key_used=cython.Py_ssize_t, header_value_used=cython.Py_ssize_t, header_row_end=cython.Py_ssize_t,
    null_keys=cython.Py_ssize_t, null_values=cython.Py_ssize_t, null_header_values=cython.Py_ssize_t,
    index=cython.Py_ssize_t, _=cython.longlong, last=cython.longlong,
    timestamp_delta=cython.longlong, offset_delta=cython.longlong, key_at=cython.Py_ssize_t,
    key_length=cython.longlong, value_at=cython.Py_ssize_t, value_length=cython.longlong,
    header_count=cython.longlong, headers_at=cython.Py_ssize_t, stop=cython.Py_ssize_t,
)
cpdef decode(
    const unsigned char[::1] data, Py_ssize_t position, Py_ssize_t end, Py_ssize_t record_count,
    long long last_offset_delta, long long timestamp_delta_min, long long timestamp_delta_max,
    long long first_offset_delta, long long end_offset_delta, long long base_offset, long long base_timestamp,
    long long timestamp_scale, Py_ssize_t row,
    long long[::1] offsets, long long[::1] timestamps,
    int[::1] key_offsets, unsigned char[::1] key_validity, unsigned char[::1] key_data,
    int[::1] value_offsets, unsigned char[::1] value_validity, unsigned char[::1] value_data,
    int[::1] header_offsets, int[::1] header_key_offsets, unsigned char[::1] header_key_data,
    int[::1] header_value_offsets, unsigned char[::1] header_value_validity, unsigned char[::1] header_value_data,
)
