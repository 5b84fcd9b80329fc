//! So much of JSON Schema 2020-12 as the documents use; a keyword that is not known here fails.

use regex::Regex;
use serde_json::Value;

/// Checks a value against a schema that refers to nothing.
pub fn check(schema: &Value, value: &Value) -> Result<(), String> {
    check_in(&Value::Null, schema, value)
}

/// Checks a value against a schema of a document.
pub fn check_in(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    let Some(keywords) = schema.as_object() else { return Err(format!("no schema: {schema}")) };
    for (keyword, rule) in keywords {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" | "examples" | "default" => true,
            "format" => {
                rule != "date-time"
                    || value.as_str().is_none_or(|t| app::model::Stamp::parse(t).is_ok())
            }
            "$ref" => {
                let pointer = rule.as_str().unwrap().trim_start_matches('#');
                let target = root.pointer(pointer).ok_or_else(|| format!("no {pointer}"))?;
                return check_in(root, target, value);
            }
            "allOf" => {
                for each in rule.as_array().unwrap() {
                    check_in(root, each, value)?;
                }
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is_a(kind, value)),
                kind => is_a(kind, value),
            },
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "pattern" => value
                .as_str()
                .is_none_or(|text| Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
            "minLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
            "maxLength" => value
                .as_str()
                .is_none_or(|text| text.chars().count() as u64 <= rule.as_u64().unwrap()),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "not" => check_in(root, rule, value).is_err(),
            "items" => {
                for item in value.as_array().into_iter().flatten() {
                    check_in(root, rule, item)?;
                }
                true
            }
            "required" => value.as_object().is_none_or(|object| {
                rule.as_array()
                    .unwrap()
                    .iter()
                    .all(|name| object.contains_key(name.as_str().unwrap()))
            }),
            "dependentRequired" => value.as_object().is_none_or(|object| {
                rule.as_object().unwrap().iter().all(|(name, needs)| {
                    !object.contains_key(name)
                        || needs
                            .as_array()
                            .unwrap()
                            .iter()
                            .all(|n| object.contains_key(n.as_str().unwrap()))
                })
            }),
            "properties" => {
                for (name, property) in rule.as_object().unwrap() {
                    if let Some(field) = value.get(name) {
                        check_in(root, property, field).map_err(|why| format!("{name}: {why}"))?;
                    }
                }
                true
            }
            "additionalProperties" => {
                let known = keywords.get("properties").and_then(Value::as_object);
                for (name, field) in value.as_object().into_iter().flatten() {
                    if known.is_some_and(|known| known.contains_key(name)) {
                        continue;
                    }
                    if rule == false {
                        return Err(format!("additional {name}"));
                    }
                    check_in(root, rule, field)?;
                }
                true
            }
            other => return Err(format!("unknown keyword {other}")),
        };
        if !holds {
            return Err(format!("{keyword} {rule} does not hold for {value}"));
        }
    }
    Ok(())
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    }
}
