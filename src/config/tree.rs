//! A configuration as it was written: values, each with its place, merged over several files.

use std::collections::BTreeMap;

use toml::de::{DeArray, DeTable, DeValue};

/// A place: a file, by index, and a byte in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At {
    pub(super) file: usize,
    pub(super) offset: usize,
}

/// A value that passed its checks, and where it was written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placed<T> {
    pub(super) at: At,
    pub(super) value: T,
}

/// A value as written, and where.
pub(super) type Item = Placed<Value>;

/// Keys with their own places and their values.
pub(super) type Table = BTreeMap<String, (At, Item)>;

/// A value as written.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Text(String),
    /// What does not fit into 128 bits is as wrong as what just does.
    Integer(i128),
    /// In the digits that were written: a share must not be rounded before it is judged.
    Decimal(String),
    Boolean(bool),
    Date(String),
    List(Vec<Item>),
    Table(Table),
}

impl Value {
    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) const fn as_integer(&self) -> Option<i128> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    pub(super) const fn as_boolean(&self) -> Option<bool> {
        if let Self::Boolean(value) = self { Some(*value) } else { None }
    }

    pub(super) fn as_list(&self) -> Option<&[Item]> {
        if let Self::List(items) = self { Some(items) } else { None }
    }

    pub(super) const fn as_table(&self) -> Option<&Table> {
        if let Self::Table(table) = self { Some(table) } else { None }
    }

    /// What it is, in the words of a message.
    pub(super) fn describe(&self) -> String {
        const SHOWN: usize = 40;
        match self {
            Self::Text(text) if text.chars().count() > SHOWN => {
                format!("{:?}…", text.chars().take(SHOWN).collect::<String>())
            }
            Self::Text(text) => format!("{text:?}"),
            Self::Integer(number) => number.to_string(),
            Self::Decimal(number) => number.clone(),
            Self::Boolean(value) => value.to_string(),
            Self::Date(date) => format!("the date {date}"),
            Self::List(_) => "a list".to_owned(),
            Self::Table(_) => "a table".to_owned(),
        }
    }
}

/// The tree of one parsed file.
pub(super) fn table(parsed: &DeTable<'_>, file: usize) -> Table {
    let entry = |(key, value): (&toml::Spanned<toml::de::DeString<'_>>, &toml::Spanned<DeValue<'_>>)| {
        (key.get_ref().to_string(), (At { file, offset: key.span().start }, item(value, file)))
    };
    parsed.iter().map(entry).collect()
}

fn item(parsed: &toml::Spanned<DeValue<'_>>, file: usize) -> Item {
    let value = match parsed.get_ref() {
        DeValue::String(text) => Value::Text(text.to_string()),
        DeValue::Integer(number) => {
            Value::Integer(i128::from_str_radix(number.as_str(), number.radix()).unwrap_or(i128::MAX))
        }
        DeValue::Float(number) => Value::Decimal(number.as_str().to_owned()),
        DeValue::Boolean(value) => Value::Boolean(*value),
        DeValue::Datetime(date) => Value::Date(date.to_string()),
        DeValue::Array(items) => Value::List(list(items, file)),
        DeValue::Table(entries) => Value::Table(table(entries, file)),
    };
    Placed { at: At { file, offset: parsed.span().start }, value }
}

fn list(parsed: &DeArray<'_>, file: usize) -> Vec<Item> {
    parsed.iter().map(|value| item(value, file)).collect()
}

/// Visits the texts that stand under some keys, wherever those are.
pub(super) fn texts(table: &Table, keys: &[&str], visit: &mut impl FnMut(At, &str)) {
    for (key, (_, item)) in table {
        match &item.value {
            Value::Text(text) if keys.contains(&key.as_str()) => visit(item.at, text),
            Value::Table(inner) => texts(inner, keys, visit),
            Value::List(items) => {
                items.iter().filter_map(|item| item.value.as_table()).for_each(|inner| texts(inner, keys, visit));
            }
            Value::Text(_) | Value::Integer(_) | Value::Decimal(_) | Value::Boolean(_) | Value::Date(_) => {}
        }
    }
}

/// Lays a later file over what is there: tables key by key, the later value winning; the lists at
/// the top (`[[tunnel]]`, `[[route]]` and their like) go on where the earlier file ended.
pub(super) fn merge(base: &mut Table, later: Table) {
    for (key, (key_at, item)) in later {
        match (base.get_mut(&key), item.value) {
            (Some((_, Placed { value: Value::List(list), .. })), Value::List(more)) => list.extend(more),
            (Some((_, Placed { value: Value::Table(table), .. })), Value::Table(over)) => override_keys(table, over),
            (_, value) => {
                base.insert(key, (key_at, Placed { at: item.at, value }));
            }
        }
    }
}

fn override_keys(base: &mut Table, later: Table) {
    for (key, (key_at, item)) in later {
        match (base.get_mut(&key), item.value) {
            (Some((_, Placed { value: Value::Table(table), .. })), Value::Table(over)) => override_keys(table, over),
            (_, value) => {
                base.insert(key, (key_at, Placed { at: item.at, value }));
            }
        }
    }
}
