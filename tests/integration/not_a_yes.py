"""What is no yes to an approval, in all the ways in which it has been sent."""

import json

from temporalio.api.common.v1 import Payload

DEEP = '{"code": "CODE", "by": "a", "arguments": {"path": ' + "[" * 500 + "]" * 500 + "}}"
NOT_A_YES: dict[str, list[str]] = {
    "true": ["--input", "true"],
    "the string true": ["--input", '"true"'],
    "the string yes": ["--input", '"yes"'],
    "null": ["--input", "null"],
    "an empty object": ["--input", "{}"],
    "approved: the string false": ["--input", '{"approved": "false"}'],
    "a wrong key": ["--input", '{"approve": true}'],
    "a wrong key beside the right ones": ["--input", '{"code": "CODE", "by": "a", "approved": true}'],
    "a list": ["--input", "[]"],
    "a list that holds the object": ["--input", '[{"code": "CODE", "by": "a"}]'],
    "a number": ["--input", "1"],
    "two inputs": ["--input", '{"code": "CODE", "by": "a"}', "--input", '{"code": "CODE", "by": "a"}'],
    "no input": [],
    "no code": ["--input", '{"by": "a"}'],
    "no by": ["--input", '{"code": "CODE"}'],
    "by is empty": ["--input", '{"code": "CODE", "by": "  "}'],
    "by is null": ["--input", '{"code": "CODE", "by": null}'],
    "by is a number": ["--input", '{"code": "CODE", "by": 7}'],
    "by cannot be seen": ["--input", '{"code": "CODE", "by": "\\u200b\\u200d"}'],
    "by turns the text around": ["--input", '{"code": "CODE", "by": "\\u202eecila"}'],
    "by holds a terminal's control characters": ["--input", '{"code": "CODE", "by": "\\u001b[2Jalice"}'],
    "by holds half a character": ["--input", '{"code": "CODE", "by": "\\ud800"}'],
    "a list of codes": ["--input", '{"code": ["CODE"], "by": "a"}'],
    "another code": ["--input", '{"code": "0000", "by": "a"}'],
    "an empty code": ["--input", '{"code": "", "by": "a"}'],
    "arguments are a list": ["--input", '{"code": "CODE", "by": "a", "arguments": []}'],
    "arguments are text": ["--input", '{"code": "CODE", "by": "a", "arguments": "{}"}'],
    "arguments of another tool": ["--input", '{"code": "CODE", "by": "a", "arguments": {"url": "http://x"}}'],
    "arguments hold half a character": [
        *("--input", '{"code": "CODE", "by": "a", "arguments": {"path": "\\ud800", "content": ""}}')
    ],
    "arguments hold an endless number": ["--input", '{"code": "CODE", "by": "a", "arguments": {"path": 1e999}}'],
    "arguments are nested too deeply": ["--input", DEEP],
    "a huge integer": ["--input", '{"code": "CODE", "by": "a", "arguments": {"path": ' + "9" * 5000 + "}}"],
    "too large": ["--input", '{"code": "CODE", "by": "a", "note": "' + "x" * 120_000 + '"}'],
    "a key twice": ["--input", '{"code": "CODE", "by": "a", "by": "b"}'],
    "a string that holds no JSON": ["--input", '"approve CODE"'],
    "a string that holds a string": ["--input", json.dumps(json.dumps(json.dumps({"code": "CODE", "by": "a"})))],
    "a string that holds a list": ["--input", '"[]"'],
    "base64 of binary": ["--input-base64", "--input-meta", "encoding=binary/plain", "--input", "3q2+7w=="],
    "the right object as binary": [
        *("--input-meta", "encoding=binary/plain", "--input", '{"code": "CODE", "by": "a"}'),
    ],
    "an encoding that nobody knows": ["--input-meta", "encoding=json/elsewhere", "--input", "{}"],
    "encrypted by a codec that is not here": ["--input-meta", "encoding=binary/encrypted", "--input", "{}"],
    "a reference to nothing": ["--input-meta", "encoding=json/external-storage-reference", "--input", "{}"],
    "the right object as a reference": [
        *("--input-meta", "encoding=json/external-storage-reference", "--input", '{"code": "CODE", "by": "a"}'),
    ],
    "the right object marked as a reference": [
        *("--input-meta", "__temporal_external_storage_reference=true", "--input", '{"code": "CODE", "by": "a"}'),
    ],
}
"""What is thrown: the CLI's arguments, with CODE for the code of the open request."""
REFERENCE = {"encoding": b"json/protobuf", "messageType": b"temporal.api.sdk.v1.ExternalStorageReference"}
MARK = {"__temporal_external_storage_reference": b"true"}
KEY = "payloads/" + "a" * 64
PAST_THE_CLI: dict[str, Payload] = {
    "bytes that are not UTF-8": Payload(metadata={"encoding": b"json/plain"}, data=b"\xff\xfe{}"),
    "NaN": Payload(metadata={"encoding": b"json/plain"}, data=b'{"code": NaN, "by": "a"}'),
    "not JSON": Payload(metadata={"encoding": b"json/plain"}, data=b"yes"),
    "nothing": Payload(metadata={"encoding": b"json/plain"}, data=b""),
    "a byte order mark": Payload(metadata={"encoding": b"json/plain"}, data=b"\xef\xbb\xbf{}"),
    "no encoding": Payload(data=b'{"code": "K7Q2", "by": "a"}'),
    "an encoding that is no text": Payload(metadata={"encoding": b"\xff\x00"}, data=b"{}"),
    "protobuf as JSON": Payload(metadata={"encoding": b"json/protobuf", "messageType": b"x.Y"}, data=b"{}"),
    "a megabyte of brackets": Payload(metadata={"encoding": b"json/plain"}, data=b"[" * 1_000_000),
    "a reference that is no object": Payload(metadata=REFERENCE, data=b"[]"),
    "a reference to a driver that is not here": Payload(
        metadata=REFERENCE, data=json.dumps({"driverName": "s3", "claimData": {"key": KEY}}).encode()
    ),
    "a reference to what is no payload": Payload(
        metadata=REFERENCE,
        data=json.dumps({"driverName": "perdure.store", "claimData": {"key": "../x", "sha256": "../x"}}).encode(),
    ),
    "a reference with a field that nobody knows": Payload(
        metadata=REFERENCE,
        data=json.dumps(
            {"driverName": "perdure.store", "claimData": {"key": KEY, "sha256": "a" * 64}, "more": 1}
        ).encode(),
    ),
    "a marked reference that is no object": Payload(metadata={**REFERENCE, **MARK}, data=b"[]"),
    "marked, without an encoding": Payload(metadata=MARK, data=b"{}"),
}
"""What other programs than the CLI may send."""
STOPPED_BY_THE_CLI = (
    ["--input", "yes"],
    ["--input", ""],
    ["--input", '{"code": "CODE", "by": "a"'],
    ["--input", "NaN"],
)
