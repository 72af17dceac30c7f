"""The compiled twin of the generated codecs: one interpreter in C of what messages declare, for all of them.

A `Codec` holds the declaration of a message in one version as an array of fields. Objects are made and read through the
offsets of their slots, without the interpreter.

It refuses (None) whatever it is not sure of: malformed bytes, text that is not UTF-8, a value of an unusual type. The
generated code of Python does the same work again then, and says what is wrong. So this code knows no text of an error,
and must never accept what the other one refuses.

Every 1,024 elements of arrays, other threads may run: a long request takes longer than the event loop has time for.
"""

from cpython.buffer cimport PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_CheckExact, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.list cimport PyList_Append, PyList_CheckExact, PyList_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.object cimport Py_NE, PyObject, PyObject_IsTrue, PyObject_RichCompareBool
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_AsUTF8String, PyUnicode_DecodeUTF8
from libc.string cimport memcpy, memmove

from tidelog.wire.generate_decoder import size_bytes_min
from tidelog.wire.primitives import ZERO_UUID, uuid_of

cdef extern from *:
    """
    #include <structmember.h>

    /* Where an object of the class of this descriptor has the value of its slot; -1 if it is no slot. */
    static Py_ssize_t slot_offset(PyObject *descriptor)
    {
        PyMemberDef *member;
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type)
            return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX && !(member->flags & READONLY) ? member->offset : -1;
    }

    #define SLOT_OF(owner, offset) ((PyObject **)((char *)(owner) + (offset)))
    #define INT64_LEAST LLONG_MIN
    #define INT64_MOST LLONG_MAX
    #define NEW(cls) (((PyTypeObject *)(cls))->tp_alloc((PyTypeObject *)(cls), 0))
    #define IS_OF(owner, cls) ((PyObject *)Py_TYPE(owner) == (cls))
    #define IS_ASCII(text) (PyUnicode_CheckExact(text) && PyUnicode_IS_COMPACT_ASCII(text))
    #define ASCII_OF(text) ((const char *)PyUnicode_1BYTE_DATA(text))
    """
    Py_ssize_t slot_offset(object descriptor)
    PyObject **_slot_of "SLOT_OF"(PyObject *owner, Py_ssize_t offset)
    PyObject *NEW(PyObject *cls) except NULL
    bint IS_OF(object owner, PyObject *cls)
    bint IS_ASCII(object text)
    bint PyUnicode_CheckExact(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    const char *ASCII_OF(object text)
    const long long INT64_LEAST, INT64_MOST
    bint PyLong_Check(object value)
    long long PyLong_AsLongLongAndOverflow(object value, int *overflow) except? -1
    object PyLong_FromLongLong(long long value)
    object PyFloat_FromDouble(double value)
    bint PyFloat_CheckExact(object value)
    double PyFloat_AS_DOUBLE(object value)
    ctypedef struct PyThreadState:
        pass
    PyThreadState *PyEval_SaveThread()
    void PyEval_RestoreThread(PyThreadState *state)

cdef enum:
    STRING_SIZE_BYTES_MAX = 0x7FFF
    TEXT_ELEMENT_BYTES = 512
    TAGGED_FIELDS_MAX = 32
    ON_STACK = 1024
    ELEMENTS_IN_A_TURN = 1024

cdef enum Kind:
    INT8, INT16, INT32, INT64, UINT16, UINT32, FLOAT64, BOOLEAN, UUID_, STRING, BYTES, RECORDS, ARRAY, STRUCT

cdef enum IsSet:
    IS_NOT_NONE, IS_TRUE, IS_FALSE, DIFFERS

cdef dict _FIXED = {
    "b": INT8, "h": INT16, "i": INT32, "q": INT64, "H": UINT16, "I": UINT32, "d": FLOAT64, "?": BOOLEAN
}
cdef dict _SIZED = {"uuid": UUID_, "string": STRING, "bytes": BYTES, "records": RECORDS, "array": ARRAY, "struct": STRUCT}
cdef object _zero_uuid = ZERO_UUID
cdef object _uuid_of = uuid_of

cdef struct Field:
    Kind kind
    bint is_nullable
    Py_ssize_t offset
    PyObject *default  # the value, or what makes it
    bint is_list  # the default
    bint is_made  # the default: by calling it
    IsSet is_set
    PyObject *compared  # the default, for `DIFFERS`
    bint must_be_unset  # this version neither carries it nor drops it
    unsigned int tag
    Py_ssize_t size_bytes_min  # of an element
    Field *element
    PyObject *struct_  # of a struct: its _Struct

cdef struct Reader:
    const unsigned char *data
    Py_ssize_t position
    Py_ssize_t end
    long long left
    bint counts
    bint is_flexible
    Py_ssize_t turn
    PyObject *view

cdef struct Writer:
    char *data
    Py_ssize_t size
    Py_ssize_t capacity
    bint is_flexible
    bint is_in_tag  # itself, and not something in it
    int tag_depth
    Py_ssize_t turn
    PyObject *pieces
    char on_stack[ON_STACK]


cdef void _let_others_run() noexcept:
    PyEval_RestoreThread(PyEval_SaveThread())


cdef class _Struct:
    """A declared class in one version."""

    cdef object cls
    cdef list kept  # what the fields refer to
    cdef Field *carried
    cdef Field *tagged
    cdef Field *absent
    cdef int carried_count
    cdef int tagged_count
    cdef int absent_count
    cdef bint is_flexible

    def __cinit__(self, layout, int version, bint is_flexible):
        fields = layout.fields
        self.cls = layout.cls
        self.kept = []
        self.is_flexible = is_flexible
        carried = [spec for spec in fields if version in spec.versions and not spec.is_tagged_in(version)]
        tagged = sorted((spec for spec in fields if spec.is_tagged_in(version)), key=_tag_of)
        absent = [spec for spec in fields if version not in spec.versions]
        self.carried = self._fields(carried, version, &self.carried_count)
        self.tagged = self._fields(tagged, version, &self.tagged_count)
        self.absent = self._fields(absent, version, &self.absent_count)

    def __dealloc__(self):
        _free_fields(self.carried, self.carried_count)
        _free_fields(self.tagged, self.tagged_count)
        _free_fields(self.absent, self.absent_count)

    cdef Field *_fields(self, list specs, int version, int *count) except NULL:
        cdef Field *made = <Field *>PyMem_Calloc(max(len(specs), 1), sizeof(Field))
        cdef Field *one
        cdef int index
        if made is NULL:
            raise MemoryError
        for index, spec in enumerate(specs):
            count[0] = index + 1
            one = &made[index]
            self._set_type(one, spec.type, version)
            one.is_nullable = version in spec.nullable
            one.offset = slot_offset(vars(self.cls)[spec.name])
            if one.offset < 0:
                raise TypeError(f"{self.cls.__name__}.{spec.name} is no slot")
            one.tag = spec.tag or 0
            one.must_be_unset = not spec.ignorable and version not in spec.versions
            default = spec.make_default()
            one.is_list = spec.default_factory is list or default == []
            one.is_made = spec.default_factory is not None
            kept = spec.default_factory if one.is_made else default
            self.kept += (kept, default)
            one.default = <PyObject *>kept
            one.compared = <PyObject *>default
            if default is None:
                one.is_set = IS_NOT_NONE
            elif (default == [] and not spec.nullable) or default is False:
                one.is_set = IS_TRUE
            elif default is True:
                one.is_set = IS_FALSE
            else:
                one.is_set = DIFFERS
        return made

    cdef int _set_type(self, Field *field, wire_type, int version) except -1:
        if wire_type.kind == "fixed":
            field.kind = _FIXED[wire_type.code]
            return 0
        field.kind = _SIZED[wire_type.kind]
        if field.kind == STRUCT:
            inner = _Struct(wire_type.layout, version, self.is_flexible)
            self.kept.append(inner)
            field.struct_ = <PyObject *>inner
        elif field.kind == ARRAY:
            field.size_bytes_min = max(1, size_bytes_min(wire_type.element, version, self.is_flexible))
            field.element = <Field *>PyMem_Calloc(1, sizeof(Field))
            if field.element is NULL:
                raise MemoryError
            self._set_type(field.element, wire_type.element, version)
        return 0


cdef void _free_fields(Field *fields, int count) noexcept:
    cdef Field *element
    cdef Field *inner
    cdef int index
    if fields is NULL:
        return
    for index in range(count):
        element = fields[index].element
        while element is not NULL:
            inner = element.element
            PyMem_Free(element)
            element = inner
    PyMem_Free(fields)


def _tag_of(spec):
    return spec.tag or 0


# Reading. Each function returns 1, or 0 if it refuses; the position says nothing then.


cdef inline int _read_uvarint(Reader *r, unsigned int *value) noexcept:
    cdef unsigned int group
    cdef unsigned int result = 0
    cdef int shift = 0
    while r.position < r.end:
        group = r.data[r.position]
        r.position += 1
        if shift == 28:
            if group > 0x0F:
                return 0
            value[0] = result | group << 28
            return 1
        result |= (group & 0x7F) << shift
        if group < 0x80:
            value[0] = result
            return 1
        shift += 7
    return 0


cdef inline unsigned long long _big_endian(const unsigned char *data, int size) noexcept:
    cdef unsigned long long value = 0
    cdef int index
    for index in range(size):
        value = value << 8 | data[index]
    return value


cdef int _read_fixed(Reader *r, Kind kind, PyObject **target) except -1:
    cdef const unsigned char *data = r.data + r.position
    cdef Py_ssize_t left = r.end - r.position
    cdef unsigned long long bits
    cdef double number
    cdef int size = 8
    if kind == INT8 or kind == BOOLEAN:
        size = 1
    elif kind == INT16 or kind == UINT16:
        size = 2
    elif kind == INT32 or kind == UINT32:
        size = 4
    if left < size:
        return 0
    r.position += size
    bits = _big_endian(data, size)
    if kind == INT8:
        made = PyLong_FromLongLong(<signed char>bits)
    elif kind == INT16:
        made = PyLong_FromLongLong(<short>bits)
    elif kind == INT32:
        made = PyLong_FromLongLong(<int>bits)
    elif kind == INT64:
        made = PyLong_FromLongLong(<long long>bits)
    elif kind == BOOLEAN:
        made = bits != 0
    elif kind == FLOAT64:
        memcpy(&number, &bits, 8)
        made = PyFloat_FromDouble(number)
    else:
        made = PyLong_FromLongLong(<long long>bits)
    return _give(made, target)


cdef inline int _give(made, PyObject **target) noexcept:
    Py_INCREF(made)
    target[0] = <PyObject *>made
    return 1


cdef int _read_value(Reader *r, Field *field, PyObject **target, bint is_nullable, int null) except -1:
    """`null`: the largest sign that says that a nullable struct is null."""
    cdef Kind kind = field.kind
    cdef unsigned int compact
    cdef long long size
    cdef PyObject *made_struct
    if kind < UUID_:
        return _read_fixed(r, kind, target)
    if kind == UUID_:
        if r.end - r.position < 16:
            return 0
        made = _uuid_of(PyBytes_FromStringAndSize(<const char *>r.data + r.position, 16))
        r.position += 16
        return _give(made, target)
    if kind == STRUCT:
        if is_nullable:
            if r.position >= r.end:
                return 0
            r.position += 1
            if <signed char>r.data[r.position - 1] <= null:
                return _give(None, target)
        made_struct = NEW(<PyObject *>(<_Struct>field.struct_).cls)
        target[0] = made_struct
        return _read_struct(r, <_Struct>field.struct_, made_struct)
    if r.is_flexible:
        if not _read_uvarint(r, &compact):
            return 0
        size = <long long>compact - 1
    elif kind == STRING:
        if r.end - r.position < 2:
            return 0
        size = <short>_big_endian(r.data + r.position, 2)
        r.position += 2
    else:
        if r.end - r.position < 4:
            return 0
        size = <int>_big_endian(r.data + r.position, 4)
        r.position += 4
    if size < 0:
        return _give(None, target) if is_nullable and size == -1 else 0
    if kind == ARRAY:
        return _read_array(r, field, size, target)
    if size > r.end - r.position:
        return 0
    if kind == STRING:
        if size > STRING_SIZE_BYTES_MAX and r.is_flexible and r.counts:
            return 0
        if size >= TEXT_ELEMENT_BYTES and r.counts:
            r.left -= size // TEXT_ELEMENT_BYTES
            if r.left < 0:
                return 0
        made = PyUnicode_DecodeUTF8(<const char *>r.data + r.position, size, NULL)
    elif kind == BYTES:
        made = PyBytes_FromStringAndSize(<const char *>r.data + r.position, size)
    else:
        made = (<object>r.view)[r.position : r.position + size]
    r.position += size
    return _give(made, target)


cdef int _read_array(Reader *r, Field *field, long long count, PyObject **target) except -1:
    cdef Py_ssize_t index
    cdef Field *element = field.element
    cdef PyObject *item
    cdef int is_read
    if count * field.size_bytes_min > r.end - r.position:
        return 0
    if r.counts:
        r.left -= count
        if r.left < 0:
            return 0
    made = []  # which grows as they come: a count is only a claim
    _give(made, target)
    for index in range(count):
        r.turn += 1
        if r.turn >= ELEMENTS_IN_A_TURN:
            r.turn = 0
            _let_others_run()
        item = NULL
        try:
            is_read = _read_value(r, element, &item, False, -1)
            if not is_read:
                return 0
            PyList_Append(made, <object>item)
        finally:
            Py_XDECREF(item)
    return 1


cdef int _read_struct(Reader *r, _Struct layout, PyObject *owner) except -1:
    cdef Field *field
    cdef int index
    for index in range(layout.absent_count):
        _set_default(&layout.absent[index], owner)
    for index in range(layout.carried_count):
        field = &layout.carried[index]
        if not _read_value(r, field, _slot_of(owner, field.offset), field.is_nullable, -1):
            return 0
    for index in range(layout.tagged_count):
        _set_default(&layout.tagged[index], owner)
    return _read_tags(r, layout, owner) if r.is_flexible else 1


cdef int _set_default(Field *field, PyObject *owner) except -1:
    if field.is_list:
        made = []
    elif field.is_made:
        made = (<object>field.default)()
    else:
        made = <object>field.default
    return _give(made, _slot_of(owner, field.offset))


cdef int _read_tags(Reader *r, _Struct layout, PyObject *owner) except -1:
    cdef unsigned int count, tag, size
    cdef long long last = -1
    cdef Py_ssize_t stop
    cdef Field *field
    cdef PyObject **target
    cdef PyObject *default
    cdef int index, is_read
    if not _read_uvarint(r, &count):
        return 0
    if count == 0:
        return 1
    if r.counts:
        r.left -= count
        if r.left < 0:
            return 0
    if count > TAGGED_FIELDS_MAX or count > r.end - r.position:
        return 0
    while count:
        count -= 1
        if not _read_uvarint(r, &tag) or not _read_uvarint(r, &size):
            return 0
        if tag <= last or size > r.end - r.position:
            return 0
        last = tag
        stop = r.position + size
        for index in range(layout.tagged_count):
            field = &layout.tagged[index]
            if field.tag == tag:
                target = _slot_of(owner, field.offset)
                default = target[0]
                target[0] = NULL
                Py_XDECREF(default)  # now: to read may raise
                is_read = _read_value(r, field, target, field.is_nullable, 0)
                if not is_read or r.position != stop:
                    return 0
                break
        r.position = stop
    return 1


# Writing. Each function returns 1, or 0 if it refuses.


cdef int _grow(Writer *w, Py_ssize_t more) except -1:
    cdef Py_ssize_t capacity = max(2 * w.capacity, w.size + more)
    cdef char *data
    if w.data == w.on_stack:
        data = <char *>PyMem_Malloc(capacity)
        if data is not NULL:
            memcpy(data, w.data, w.size)
    else:
        data = <char *>PyMem_Realloc(w.data, capacity)
    if data is NULL:
        raise MemoryError
    w.data = data
    w.capacity = capacity
    return 0


cdef inline int _put(Writer *w, const char *data, Py_ssize_t size) except -1:
    if w.capacity - w.size < size:
        _grow(w, size)
    memcpy(w.data + w.size, data, size)
    w.size += size
    return 1


cdef inline int _put_number(Writer *w, unsigned long long bits, int size) except -1:
    cdef int index
    if w.capacity - w.size < size:
        _grow(w, size)
    for index in range(size):
        w.data[w.size + index] = <char>(bits >> 8 * (size - 1 - index))
    w.size += size
    return 1


cdef inline int _uvarint(char *into, unsigned int value) noexcept:
    cdef int size = 0
    while value >= 0x80:
        into[size] = <char>(value & 0x7F | 0x80)
        value >>= 7
        size += 1
    into[size] = <char>value
    return size + 1


cdef inline int _put_uvarint(Writer *w, long long value) except -1:
    if value > 0xFFFFFFFF:
        return 0
    if w.capacity - w.size < 5:
        _grow(w, 5)
    w.size += _uvarint(w.data + w.size, <unsigned int>value)
    return 1


cdef int _put_integer(Writer *w, value, long long least, long long most, int size) except -1:
    cdef int overflow = 0
    cdef long long number
    if not PyLong_Check(value):
        return 0
    number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or number < least or number > most:
        return 0
    return _put_number(w, <unsigned long long>number, size)


cdef int _put_fixed(Writer *w, Kind kind, value) except -1:
    cdef double number
    cdef unsigned long long bits
    if kind == INT8:
        return _put_integer(w, value, -0x80, 0x7F, 1)
    if kind == INT16:
        return _put_integer(w, value, -0x8000, 0x7FFF, 2)
    if kind == INT32:
        return _put_integer(w, value, -0x80000000LL, 0x7FFFFFFFLL, 4)
    if kind == INT64:
        return _put_integer(w, value, INT64_LEAST, INT64_MOST, 8)
    if kind == UINT16:
        return _put_integer(w, value, 0, 0xFFFF, 2)
    if kind == UINT32:
        return _put_integer(w, value, 0, 0xFFFFFFFFLL, 4)
    if kind == BOOLEAN:
        return _put_number(w, value is True, 1) if value is True or value is False else 0
    if not PyFloat_CheckExact(value):
        return 0
    number = PyFloat_AS_DOUBLE(value)
    memcpy(&bits, &number, 8)
    return _put_number(w, bits, 8)


cdef inline int _put_size(Writer *w, Kind kind, long long size) except -1:
    """In front of a value; -1 for null."""
    if w.is_flexible:
        return _put_uvarint(w, size + 1)
    if kind == STRING:
        return _put_number(w, <unsigned long long>size, 2) if size <= 0x7FFF else 0
    return _put_number(w, <unsigned long long>size, 4) if size <= 0x7FFFFFFFLL else 0


cdef int _put_value(Writer *w, Field *field, value, bint is_nullable) except -1:
    cdef Kind kind = field.kind
    if kind < UUID_:
        return _put_fixed(w, kind, value)
    if kind == UUID_:
        if value is _zero_uuid:
            return _put_number(w, 0, 8) and _put_number(w, 0, 8)
        raw = value.int.to_bytes(16, "big")
        return _put(w, PyBytes_AS_STRING(raw), 16)
    if kind == STRUCT:
        if is_nullable:
            if value is None:
                return _put_number(w, 0 if w.is_in_tag else 0xFF, 1)
            _put_number(w, 1, 1)
        w.is_in_tag = False
        return _put_struct(w, <_Struct>field.struct_, value)
    if value is None:
        return _put_size(w, kind, -1) if is_nullable else 0
    if kind == STRING:
        if IS_ASCII(value):
            return _put_size(w, kind, PyUnicode_GET_LENGTH(value)) and _put(
                w, ASCII_OF(value), PyUnicode_GET_LENGTH(value)
            )
        if not PyUnicode_CheckExact(value):
            return 0
        raw = PyUnicode_AsUTF8String(value)
        return _put_bytes(w, kind, raw)
    if kind == BYTES:
        return _put_bytes(w, kind, value)
    if kind == RECORDS:
        return _put_records(w, value)
    return _put_array(w, field, value)


cdef int _put_bytes(Writer *w, Kind kind, value) except -1:
    cdef Py_ssize_t size
    if PyBytes_CheckExact(value):
        size = PyBytes_GET_SIZE(value)
        return _put_size(w, kind, size) and _put(w, PyBytes_AS_STRING(value), size)
    if PyByteArray_CheckExact(value):
        size = PyByteArray_GET_SIZE(value)
        return _put_size(w, kind, size) and _put(w, PyByteArray_AS_STRING(value), size)
    return 0


cdef int _put_records(Writer *w, value) except -1:
    cdef Py_ssize_t size = len(value)
    if w.tag_depth or not _put_size(w, RECORDS, size):
        return 0
    if size:
        (<list>w.pieces).append(PyBytes_FromStringAndSize(w.data, w.size))
        (<list>w.pieces).append(value)
        w.size = 0
    return 1


cdef int _put_array(Writer *w, Field *field, value) except -1:
    cdef Py_ssize_t index, count
    if not PyList_CheckExact(value):
        return 0
    count = PyList_GET_SIZE(value)
    if not _put_size(w, ARRAY, count):
        return 0
    for index in range(count):
        w.turn += 1
        if w.turn >= ELEMENTS_IN_A_TURN:
            w.turn = 0
            _let_others_run()
        if index >= PyList_GET_SIZE(value) or not _put_value(w, field.element, (<list>value)[index], False):
            return 0
    return 1


cdef int _put_struct(Writer *w, _Struct layout, owner) except -1:
    cdef Field *field
    cdef PyObject *value
    cdef int index
    if not IS_OF(owner, <PyObject *>layout.cls):
        return 0
    for index in range(layout.absent_count):
        field = &layout.absent[index]
        if field.must_be_unset:
            value = _slot_of(<PyObject *>owner, field.offset)[0]
            if value is NULL or _is_set(field, <object>value):
                return 0
    for index in range(layout.carried_count):
        field = &layout.carried[index]
        value = _slot_of(<PyObject *>owner, field.offset)[0]
        if value is NULL or not _put_value(w, field, <object>value, field.is_nullable):
            return 0
    return _put_tags(w, layout, owner) if w.is_flexible else 1


cdef int _is_set(Field *field, value) except -1:
    """Whether a field holds something else than its default."""
    if field.is_set == IS_NOT_NONE:
        return value is not None
    if field.is_set == IS_TRUE:
        return PyObject_IsTrue(value)
    if field.is_set == IS_FALSE:
        return not PyObject_IsTrue(value)
    return PyObject_RichCompareBool(value, <object>field.compared, Py_NE)


cdef int _put_tags(Writer *w, _Struct layout, owner) except -1:
    cdef Field *field
    cdef PyObject *value
    cdef Py_ssize_t start, size
    cdef int index, sized
    cdef unsigned int count = 0
    cdef char head[5]
    for index in range(layout.tagged_count):
        field = &layout.tagged[index]
        value = _slot_of(<PyObject *>owner, field.offset)[0]
        if value is NULL:
            return 0
        count += _is_set(field, <object>value)
    _put_uvarint(w, count)
    if not count:
        return 1
    for index in range(layout.tagged_count):
        field = &layout.tagged[index]
        value = _slot_of(<PyObject *>owner, field.offset)[0]
        if value is NULL:
            return 0
        if not _is_set(field, <object>value):
            continue
        count -= 1
        _put_uvarint(w, field.tag)
        start = w.size
        w.is_in_tag = True
        w.tag_depth += 1
        if not _put_value(w, field, <object>value, field.is_nullable):
            return 0
        w.is_in_tag = False
        w.tag_depth -= 1
        size = w.size - start
        sized = _uvarint(head, <unsigned int>size)
        _put(w, head, sized)  # for its room
        memmove(w.data + start + sized, w.data + start, size)
        memcpy(w.data + start, head, sized)
    return count == 0


cdef class Codec:
    """Of a message in one version.

    Args:
        layout: of the message.
        version: one of those that it has.
    """

    cdef _Struct _root
    cdef bint _is_flexible
    cdef bint _counts

    def __init__(self, layout, int version):
        self._is_flexible = version in layout.flexible
        self._counts = layout.kind == "request"
        self._root = _Struct(layout, version, self._is_flexible)

    def decode(self, view, Py_ssize_t position, long long elements_max, bint ignores_trailing_bytes):
        """The message that lies in `view` from `position` on; None: the other twin is to be asked. See `wire.decode`."""
        cdef Py_buffer buffer
        cdef Reader r
        cdef PyObject *made = NULL
        cdef int is_read = 0
        if position < 0:
            return None
        PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
        try:
            r.data = <const unsigned char *>buffer.buf
            r.position = position
            r.end = buffer.len
            r.left = elements_max
            r.counts = self._counts
            r.is_flexible = self._is_flexible
            r.turn = 0
            r.view = <PyObject *>view
            made = NEW(<PyObject *>self._root.cls)
            is_read = buffer.itemsize == 1 and _read_struct(&r, self._root, made)
            if not is_read or (r.position != r.end and not ignores_trailing_bytes):
                return None
            return <object>made
        except UnicodeDecodeError:
            return None
        finally:
            Py_XDECREF(made)
            PyBuffer_Release(&buffer)

    def encode(self, message, bytes header):
        """The message as pieces; with a header that is not None, as a frame: its size and the header in front.

        None: the other twin is to be asked. See `wire.encode_pieces`.
        """
        cdef Writer w
        cdef list pieces = []
        cdef unsigned long long size = 0
        w.data = w.on_stack
        w.size = 0
        w.capacity = ON_STACK
        w.is_flexible = self._is_flexible
        w.is_in_tag = False
        w.tag_depth = 0
        w.turn = 0
        w.pieces = <PyObject *>pieces
        try:
            if header is not None:
                _put_number(&w, 0, 4)
                _put(&w, PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header))
            if not _put_struct(&w, self._root, message):
                return None
            if w.size:
                pieces.append(PyBytes_FromStringAndSize(w.data, w.size))
            if header is None:
                return pieces
            for piece in pieces:
                size += <unsigned long long>len(piece)
            size -= 4
            if size > 0x7FFFFFFF:
                return None
            w.size = 0
            _put_number(&w, size, 4)
            memcpy(PyBytes_AS_STRING(pieces[0]), w.data, 4)  # nobody has seen it yet
            return pieces
        except Exception:
            return None
        finally:
            if w.data != w.on_stack:
                PyMem_Free(w.data)


def read_request_header(view, dict flexible_from, dict senders, make):
    """The header of a request, if its sender is a known one: (header, where the body starts), or None.

    See `frame.decode_request_header`.

    Args:
        flexible_from: by API, the first version with tagged fields.
        senders: (client id, consistency state), by the bytes that say so.
        make: makes the header of a tuple.
    """
    cdef Py_buffer buffer
    cdef const unsigned char *data
    cdef Py_ssize_t position, end, size
    cdef short api_key, version
    cdef int correlation_id
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        data = <const unsigned char *>buffer.buf
        size = buffer.len
        if size < 10 or buffer.itemsize != 1:
            return None
        api_key = <short>_big_endian(data, 2)
        version = <short>_big_endian(data + 2, 2)
        correlation_id = <int>_big_endian(data + 4, 4)
        position = 10 + max(<short>_big_endian(data + 8, 2), 0)
        if position >= size or version < flexible_from.get(api_key, 0x8000):
            return None
        if data[position] == 0:
            end = position + 1
        else:
            end = position + 3 + data[position + 2] if position + 2 < size else position
        if end > size:
            return None
        sender = senders.get(PyBytes_FromStringAndSize(<const char *>data + 8, end - 8))
        if sender is None:
            return None
        client_id, state = sender
        return make((api_key, version, correlation_id, client_id, state)), end
    finally:
        PyBuffer_Release(&buffer)


cdef enum:  # of Produce
    PRODUCE_FROM_VERSION = 5
    PRODUCE_FLEXIBLE_FROM = 9
    PRODUCE_IDS_FROM = 13
    PRODUCE_VERSION_MAX = 13
    SAME_BYTES_MAX = 1024


def split_produce(view):
    """A Produce request that holds one batch, outside of transactions, and is to be answered.

    Returns:
        (what a producer sends again with each batch for the partition, the correlation id, the batch). The first is all
        bytes but those two and their size. None for any other request, and for what is malformed.
    """
    cdef Py_buffer buffer
    cdef Reader r
    cdef Py_ssize_t start
    cdef int version, trailing
    cdef int correlation_id
    cdef long long size
    cdef unsigned int compact
    cdef short acks
    PyObject_GetBuffer(view, &buffer, PyBUF_SIMPLE)
    try:
        r.data = <const unsigned char *>buffer.buf
        r.end = buffer.len
        if r.end < 10 or buffer.itemsize != 1 or r.data[0] or r.data[1] or r.data[2]:
            return None
        version = r.data[3]
        if version < PRODUCE_FROM_VERSION or version > PRODUCE_VERSION_MAX:
            return None
        r.is_flexible = version >= PRODUCE_FLEXIBLE_FROM
        correlation_id = <int>_big_endian(r.data + 4, 4)
        size = <short>_big_endian(r.data + 8, 2)
        if size < -1:
            return None
        r.position = 10 + max(size, 0)
        trailing = 0
        if r.is_flexible:
            if r.end - r.position < 2 or r.data[r.position] or r.data[r.position + 1]:
                return None  # it has tagged fields, or a transaction
            r.position += 2
            trailing = 3  # tagged fields
        else:
            if r.end - r.position < 2 or <short>_big_endian(r.data + r.position, 2) != -1:
                return None
            r.position += 2
        if r.end - r.position < 6:
            return None
        acks = <short>_big_endian(r.data + r.position, 2)
        if acks != 1 and acks != -1:
            return None
        r.position += 6
        if not _is_one(&r):
            return None
        if version >= PRODUCE_IDS_FROM:
            size = 16
        elif r.is_flexible:
            if not _read_uvarint(&r, &compact):
                return None
            size = <long long>compact - 1
        else:
            if r.end - r.position < 2:
                return None
            size = <short>_big_endian(r.data + r.position, 2)
            r.position += 2
        if size < 0 or size > r.end - r.position:
            return None
        r.position += size
        if not _is_one(&r) or r.end - r.position < 4:
            return None
        r.position += 4
        start = r.position
        if start > SAME_BYTES_MAX:
            return None
        if r.is_flexible:
            if not _read_uvarint(&r, &compact):
                return None
            size = <long long>compact - 1
        else:
            if r.end - r.position < 4:
                return None
            size = <int>_big_endian(r.data + r.position, 4)
            r.position += 4
        if size < 1 or size != r.end - r.position - trailing:
            return None
        if trailing and (r.data[r.end - 1] or r.data[r.end - 2] or r.data[r.end - 3]):
            return None
        same = PyBytes_FromStringAndSize(NULL, start - 4)
        memcpy(PyBytes_AS_STRING(same), r.data, 4)
        memcpy(PyBytes_AS_STRING(same) + 4, r.data + 8, start - 8)
        return same, correlation_id, view[r.position : r.position + size]
    finally:
        PyBuffer_Release(&buffer)


cdef int _is_one(Reader *r) noexcept:
    """Whether an array of one element begins here."""
    if r.is_flexible:
        r.position += 1
        return r.position <= r.end and r.data[r.position - 1] == 2
    r.position += 4
    return r.position <= r.end and _big_endian(r.data + r.position - 4, 4) == 1
