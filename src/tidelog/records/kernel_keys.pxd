# The C types of kernel_keys.py, for the copy of it that is compiled. Which copy, and how: see setup.py.
cimport cython

@cython.locals(
    multiplier=cython.ulonglong, mask=cython.ulonglong, digest=cython.ulonglong, word=cython.ulonglong,
    position=cython.Py_ssize_t,
)
cdef unsigned long long _murmur2(const unsigned char[::1] data, Py_ssize_t start, Py_ssize_t stop) noexcept

cpdef murmur2(const unsigned char[::1] key)

@cython.locals(
    fits=cython.bint, size=cython.Py_ssize_t, row=cython.Py_ssize_t, at=cython.Py_ssize_t, end=cython.Py_ssize_t,
    partition=cython.ulonglong,
)
cpdef partitions_of_keys(
    const int[::1] key_offsets, const unsigned char[::1] key_validity, const unsigned char[::1] key_data,
    Py_ssize_t start, Py_ssize_t stop, unsigned long long partition_count, int[::1] partitions, int[::1] counts,
)

@cython.locals(
    row_count=cython.Py_ssize_t, partition_count=cython.Py_ssize_t, total=cython.Py_ssize_t, partition=cython.Py_ssize_t,
    count=cython.Py_ssize_t, row=cython.Py_ssize_t,
)
cpdef sort_rows(const int[::1] partitions, int[::1] counts, Py_ssize_t keyless_partition, int[::1] rows)
