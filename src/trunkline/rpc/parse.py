"""Bytes from the wire to messages, with the fault named when they are not one.

protobuf says only that parsing failed; a client whose prompt is Latin-1 deserves to be told which field is not UTF-8.
So a message that fails is parsed once more under a twin of its type in which strings are bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TypeVar, cast

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.message import DecodeError, Message

from trunkline.errors import InvalidArgument

M = TypeVar("M", bound=Message)
_STRING = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
_BYTES = descriptor_pb2.FieldDescriptorProto.TYPE_BYTES


def parse(cls: type[M], data: bytes) -> M:
    """`data` as a `cls`. Raises InvalidArgument that names the field which is not UTF-8, or "request"."""
    try:
        return cls.FromString(data)
    except DecodeError as error:
        raise InvalidArgument(*_diagnose(cast(Descriptor, cls.DESCRIPTOR), data)) from error


def _diagnose(descriptor: Descriptor, data: bytes) -> tuple[str, str]:
    try:
        lenient = message_factory.GetMessageClass(_twin(descriptor)).FromString(data)
    except DecodeError:
        return "request", f"is not a {descriptor.full_name} message"
    for path, value in _byte_strings(descriptor, lenient, ""):
        try:
            value.decode("utf-8")
        except UnicodeDecodeError as error:
            return path, f"is not valid UTF-8 (byte {error.start}: 0x{value[error.start]:02x})"
    return "request", f"is not a {descriptor.full_name} message"


@cache
def _twin(descriptor: Descriptor) -> Descriptor:
    """`descriptor` again in a pool of its own, each string field as bytes."""
    pool = descriptor_pool.DescriptorPool()
    for file in _with_dependencies(descriptor.file):
        proto = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(proto)
        for message_type in proto.message_type:
            _strings_to_bytes(message_type)
        pool.Add(proto)
    return pool.FindMessageTypeByName(descriptor.full_name)


def _with_dependencies(file: FileDescriptor) -> list[FileDescriptor]:
    """`file` after all it imports, each once."""
    ordered: dict[str, FileDescriptor] = {}
    for dependency in file.dependencies:
        ordered.update((f.name, f) for f in _with_dependencies(dependency))
    ordered[file.name] = file
    return list(ordered.values())


def _strings_to_bytes(message_type: descriptor_pb2.DescriptorProto) -> None:
    for field in message_type.field:
        if field.type == _STRING:
            field.type = _BYTES
    for nested in message_type.nested_type:
        if not nested.options.map_entry:
            _strings_to_bytes(nested)


def _byte_strings(original: Descriptor, twin: Message, prefix: str) -> Iterator[tuple[str, bytes]]:
    """(path, value) of every set field that `original` declares as a string."""
    for field, value in twin.ListFields():
        declared = original.fields_by_name[field.name]
        values = [value] if not field.is_repeated else value
        for i, item in enumerate(values):
            path = f"{prefix}{field.name}" + (f"[{i}]" if field.is_repeated else "")
            if declared.type == FieldDescriptor.TYPE_STRING and isinstance(item, bytes):
                yield path, item
            elif declared.type == FieldDescriptor.TYPE_MESSAGE and declared.message_type is not None:
                yield from _byte_strings(declared.message_type, item, path + ".")
