# The C types of kernel_encode.py, for the copy of it that is compiled. Which copy, and how: see setup.py.
cimport cython

@cython.locals(bits=cython.ulonglong, size=cython.Py_ssize_t)
cdef Py_ssize_t _varint_size(long long value) noexcept

@cython.locals(bits=cython.ulonglong)
cdef Py_ssize_t _put_varint(unsigned char[::1] out, Py_ssize_t position, long long value) noexcept

@cython.locals(start=cython.Py_ssize_t, length=cython.Py_ssize_t)
cdef Py_ssize_t _length_at(
    const int[::1] offsets, const unsigned char[::1] validity, Py_ssize_t row, Py_ssize_t data_size
) noexcept

@cython.locals(
    has_keys=cython.bint, has_values=cython.bint, has_headers=cython.bint, fits=cython.bint, header_row_end=cython.Py_ssize_t,
    has_rows=cython.bint, row_end=cython.Py_ssize_t, index=cython.Py_ssize_t,
    position=cython.Py_ssize_t, room=cython.Py_ssize_t, largest=cython.longlong, row=cython.Py_ssize_t,
    timestamp=cython.longlong, key_length=cython.Py_ssize_t, value_length=cython.Py_ssize_t,
    header_row=cython.Py_ssize_t, header_row_stop=cython.Py_ssize_t, body=cython.longlong,
    header=cython.Py_ssize_t, length=cython.Py_ssize_t, header_value_length=cython.Py_ssize_t, at=cython.Py_ssize_t,
)
cpdef encode(
    unsigned char[::1] out, Py_ssize_t size_bytes_max, Py_ssize_t start, Py_ssize_t stop, long long base_timestamp,
    const long long[::1] timestamps,
    const int[::1] key_offsets, const unsigned char[::1] key_validity, const unsigned char[::1] key_data,
    const int[::1] value_offsets, const unsigned char[::1] value_validity, const unsigned char[::1] value_data,
    const int[::1] header_offsets, const int[::1] header_key_offsets, const unsigned char[::1] header_key_data,
    const int[::1] header_value_offsets, const unsigned char[::1] header_value_validity,
    const unsigned char[::1] header_value_data, const int[::1] rows,
)
