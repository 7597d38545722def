# SPDX-License-Identifier: MIT
"""Hold a value to a JSON Schema of docs/schema, with the keywords that these use and no others.

    errors = schema.check("plan", value)     a list of "path: what is wrong", empty when it holds

A keyword that is not known here is an error of the schema, so that none is silently not checked.
"""

import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "docs" / "schema"
NOTES = {"$schema", "$id", "$defs", "title", "description"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def load(name):
    return json.loads((FOLDER / name).read_text())


def is_type(value, name):
    if name in ("integer", "number"):
        good = (int,) if name == "integer" else (int, float)
        return isinstance(value, good) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def resolve(reference, document):
    """What "file.schema.json#/a/b" stands for, and the document that it stands in."""
    name, _, path = reference.partition("#")
    document = load(name) if name else document
    found = document
    for part in filter(None, path.split("/")):
        found = found[part]
    return found, document


def same(a, b):
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def keyword(key, want, value, schema, document, path):
    """The errors of one keyword."""
    if key == "$ref":
        found, within = resolve(want, document)
        return walk(found, value, within, path)
    if key == "oneOf":
        tries = [walk(each, value, document, path) for each in want]
        if sum(not errors for errors in tries) == 1:
            return []
        return [f"{path}: none of these, or several: {tries}"]
    if key == "type":
        wanted = want if isinstance(want, list) else [want]
        return [] if any(is_type(value, name) for name in wanted) else [f"{path}: {value!r} is not {' or '.join(wanted)}"]
    if key in ("enum", "const"):
        allowed = want if key == "enum" else [want]
        return [] if any(same(value, each) for each in allowed) else [f"{path}: {value!r} is not one of {allowed}"]
    if key in ("minimum", "maximum"):
        good = not is_type(value, "number") or (value >= want if key == "minimum" else value <= want)
    elif key in ("minItems", "maxItems"):
        good = not isinstance(value, list) or (len(value) >= want if key == "minItems" else len(value) <= want)
    elif key == "pattern":
        good = not isinstance(value, str) or re.search(want, value) is not None
    elif key == "required":
        return [f"{path}: {name} is missing" for name in want if isinstance(value, dict) and name not in value]
    elif key == "properties":
        return [error for name, each in want.items() if isinstance(value, dict) and name in value
                for error in walk(each, value[name], document, f"{path}.{name}")]
    elif key == "additionalProperties" and want is False:
        unknown = set(value) - set(schema["properties"]) if isinstance(value, dict) else ()
        return [f"{path}: {name} is not known" for name in sorted(unknown)]
    elif key == "items":
        return [error for i, item in enumerate(value if isinstance(value, list) else ())
                for error in walk(want, item, document, f"{path}[{i}]")]
    else:
        raise ValueError(f"{path}: the keyword {key} is not checked here")
    return [] if good else [f"{path}: {value!r} breaks {key} {want}"]


def walk(schema, value, document, path):
    errors = []
    for key, want in schema.items():
        if key not in NOTES:
            errors += keyword(key, want, value, schema, document, path)
    return errors


def check(name, value):
    document = load(f"{name}.schema.json")
    return walk(document, value, document, name)
