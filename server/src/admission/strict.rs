//! One JSON object of text fields, read strictly: what two readers could understand differently is
//! refused.
//!
//! The limit is checked before anything is read, then UTF-8, then JSON by the letter: nothing after the
//! object, no `NaN`, no comments, no byte order mark. A name that stands twice is found, also when one of
//! the two is written with escapes. Nested values are skipped without recursion: here they are always of
//! the wrong type, so what is inside them does not matter.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The largest event: 16 KiB (CONTRACT section 4).
pub const EVENT_BYTES_MAX: usize = 16 * 1024;

/// The value of one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Text(String),
    /// A number, a boolean, `null`, a list or an object.
    Other,
}

/// A JSON object with its names in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Object {
    pub fields: BTreeMap<String, Value>,
    /// Names that stand more than once.
    pub repeated: BTreeSet<String>,
}

/// Why the bytes are no such object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StrictError {
    #[error("too many bytes")]
    TooLarge,
    #[error("not UTF-8")]
    NotUtf8,
    #[error("not JSON")]
    NotJson,
    #[error("not a JSON object")]
    NotAnObject,
}

impl StrictError {
    /// The field code that a client sees.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NotUtf8 => "not_utf8",
            Self::NotJson => "not_json",
            Self::NotAnObject => "not_an_object",
        }
    }
}

/// Reads one object of at most `bytes_max` bytes.
///
/// # Errors
/// [`StrictError`]. Repeated names are no error here: they are reported with the other fields.
pub fn read(bytes: &[u8], bytes_max: usize) -> Result<Object, StrictError> {
    if bytes.len() > bytes_max {
        return Err(StrictError::TooLarge);
    }
    // As a whole and first: what is skipped below is not checked for it.
    let text = std::str::from_utf8(bytes).map_err(|_| StrictError::NotUtf8)?;
    match serde_json::from_str::<Object>(text) {
        Ok(object) => Ok(object),
        // A number beyond every range is a number all the same.
        Err(error) if error.is_data() => Err(StrictError::NotAnObject),
        Err(_) => Err(StrictError::NotJson),
    }
}

impl<'de> Deserialize<'de> for Object {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Object;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Object, A::Error> {
                let mut object = Object::default();
                while let Some(name) = map.next_key::<String>()? {
                    let value = map.next_value::<Value>()?;
                    if object.fields.insert(name.clone(), value).is_some() {
                        object.repeated.insert(name);
                    }
                }
                Ok(object)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Value, E> {
                Ok(Value::Text(text.to_owned()))
            }

            fn visit_string<E>(self, text: String) -> Result<Value, E> {
                Ok(Value::Text(text))
            }

            fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_i64<E>(self, _: i64) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_u64<E>(self, _: u64) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_f64<E>(self, _: f64) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_unit<E>(self) -> Result<Value, E> {
                Ok(Value::Other)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
                while seq.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Value::Other)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
                while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
                Ok(Value::Other)
            }
        }

        deserializer.deserialize_any(Any)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &str) -> Value {
        Value::Text(value.to_owned())
    }

    #[test]
    fn an_object_is_read_with_every_kind_of_value() {
        let read = read(
            "\n {\"a\":\"x\", \"b\":1,\"c\":-1.5e3,\"d\":true,\"e\":null,\"f\":[[{}]],\"g\":{\"h\":{}},\"\\u0069\":\"\\u00e9\"}\t"
                .as_bytes(),
            EVENT_BYTES_MAX,
        )
        .unwrap();
        assert!(read.repeated.is_empty());
        assert_eq!(read.fields["a"], text("x"));
        assert_eq!(read.fields["i"], text("é"));
        for name in ["b", "c", "d", "e", "f", "g"] {
            assert_eq!(read.fields[name], Value::Other, "{name}");
        }
    }

    #[test]
    fn names_that_stand_twice_are_found() {
        for bad in [
            r#"{"a":"1","a":"1"}"#,
            r#"{"a":"1","b":"2","a":3}"#,
            r#"{"a":"1","\u0061":"2"}"#,
            r#"{"a":{},"a":[]}"#,
        ] {
            let object = read(bad.as_bytes(), 100).unwrap();
            assert_eq!(object.repeated.into_iter().collect::<Vec<_>>(), ["a"], "{bad}");
        }
    }

    #[test]
    fn what_is_not_json_by_the_letter_is_refused() {
        use StrictError::{NotAnObject, NotJson, NotUtf8};
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
        let unclosed = format!("{{\"a\":{}", "[".repeat(8_000));
        let table: &[(&[u8], StrictError)] = &[
            (b"", NotJson),
            (b" ", NotJson),
            (b"{", NotJson),
            (b"{}}", NotJson),
            (b"{}{}", NotJson),
            (b"{} x", NotJson),
            (b"{}\0", NotJson),
            (b"{\"a\":NaN}", NotJson),
            (b"{\"a\":Infinity}", NotJson),
            (b"{\"a\":-Infinity}", NotJson),
            (b"{\"a\":01}", NotJson),
            (b"{\"a\":+1}", NotJson),
            (b"{\"a\":.5}", NotJson),
            (b"{\"a\":\"b\",}", NotJson),
            (b"{'a':'b'}", NotJson),
            (b"{a:\"b\"}", NotJson),
            (b"{\"a\":\"b\"/*c*/}", NotJson),
            (b"{\"a\":\"b\" \"c\":\"d\"}", NotJson),
            (b"{\"a\":\"line\nbreak\"}", NotJson),
            (b"{\"a\":\"\\ud800\"}", NotJson),
            (b"{\"a\":\"\\x41\"}", NotJson),
            (b"\xef\xbb\xbf{}", NotJson),
            (b"{\"a\":\"\xff\"}", NotUtf8),
            (b"{\"a\":[\"\xc0\xaf\"]}", NotUtf8),
            (b"{\"a\":\"\xed\xa0\x80\"}", NotUtf8),
            (b"[]", NotAnObject),
            (b"\"text\"", NotAnObject),
            (b"null", NotAnObject),
            (b"7", NotAnObject),
            (b"true", NotAnObject),
            (unclosed.as_bytes(), NotJson),
        ];
        for (bytes, why) in table {
            let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]);
            assert_eq!(read(bytes, EVENT_BYTES_MAX), Err(*why), "{shown}");
        }
        // Depth costs no stack; the value is of the wrong type whatever is in it.
        assert_eq!(read(deep.as_bytes(), EVENT_BYTES_MAX).unwrap().fields["a"], Value::Other);
    }

    #[test]
    fn the_limit_is_exact() {
        let fits = format!("{{\"a\":\"{}\"}}", "x".repeat(EVENT_BYTES_MAX - 8));
        assert_eq!(fits.len(), EVENT_BYTES_MAX);
        assert!(read(fits.as_bytes(), EVENT_BYTES_MAX).is_ok());
        let over = format!("{fits} ");
        assert_eq!(read(over.as_bytes(), EVENT_BYTES_MAX), Err(StrictError::TooLarge));
    }

    #[test]
    fn any_bytes_are_read_without_a_panic() {
        proptest::proptest!(|(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200))| {
            let _ = read(&bytes, EVENT_BYTES_MAX);
        });
        proptest::proptest!(|(text in "[\\{\\}\\[\\]\",:a\\\\u0-9eE.+ tfn-]{0,60}")| {
            let _ = read(text.as_bytes(), EVENT_BYTES_MAX);
        });
    }
}
