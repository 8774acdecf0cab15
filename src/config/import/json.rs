//! Values of an export, each with its way into the file, so that a complaint can name the place.

use std::cell::RefCell;
use std::fmt;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;
use serde_json::Value;

use crate::config::lines::plain;

/// One thing that is malformed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file.
    pub file: String,
    /// Where in it: the way to the value, as in `result.routes[3].prefix`, or line and column where it is not JSON.
    pub place: String,
    /// What is wrong, what was expected, and what to do: one line.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, place, message } = self;
        if place.is_empty() { write!(f, "{file}: {message}") } else { write!(f, "{file}:{place}: {message}") }
    }
}

/// Everything that is malformed: at least one problem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problems(Vec<Problem>);

/// More problems than this are one mistake made many times.
const SHOWN: usize = 50;

impl Problems {
    /// The problems one by one.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.0.iter()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more like these"),
        }
    }
}

impl std::error::Error for Problems {}

/// What is wrong so far.
#[derive(Debug, Default)]
pub(super) struct Report(RefCell<Vec<Problem>>);

impl Report {
    pub(super) fn add(&self, file: &str, place: impl Into<String>, message: impl Into<String>) {
        let problem = Problem { file: file.to_owned(), place: place.into(), message: message.into() };
        self.0.borrow_mut().push(problem);
    }

    /// What is built, if nothing was wrong.
    pub(super) fn conclude<T>(self, built: T) -> Result<T, Problems> {
        let problems = self.0.into_inner();
        if problems.is_empty() { Ok(built) } else { Err(Problems(problems)) }
    }
}

/// A step on the way to a value; the whole way is written only for a complaint.
#[derive(Debug)]
enum Step {
    Top(String),
    Key(Rc<Self>, String),
    Index(Rc<Self>, usize),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Top(top) => f.write_str(top),
            Self::Index(before, index) => write!(f, "{before}[{index}]"),
            Self::Key(before, key) => match before.to_string() {
                before if before.is_empty() => write!(f, "{}", plain(key)),
                before => write!(f, "{before}.{}", plain(key)),
            },
        }
    }
}

/// A value, and the way to it.
#[derive(Clone)]
pub(super) struct Item<'a> {
    pub(super) value: &'a Value,
    file: &'a str,
    way: Rc<Step>,
    report: &'a Report,
}

impl<'a> Item<'a> {
    /// A whole document; `top` tells it from the others of its file.
    pub(super) fn document(value: &'a Value, file: &'a str, top: String, report: &'a Report) -> Self {
        Self { value, file, way: Rc::new(Step::Top(top)), report }
    }

    /// Notes that something is wrong with this value.
    pub(super) fn complain(&self, message: impl Into<String>) {
        self.report.add(self.file, self.way.to_string(), message);
    }

    /// What stands under a key; null is as good as nothing.
    pub(super) fn field(&self, key: &str) -> Option<Self> {
        let value = self.value.get(key).filter(|value| !value.is_null())?;
        Some(Self { value, way: Rc::new(Step::Key(Rc::clone(&self.way), key.to_owned())), ..self.clone() })
    }

    /// The elements of a list; nothing of what is none.
    pub(super) fn elements(&self) -> Vec<Self> {
        let list = self.value.as_array().map_or(&[][..], Vec::as_slice);
        let element =
            |(index, value)| Self { value, way: Rc::new(Step::Index(Rc::clone(&self.way), index)), ..self.clone() };
        list.iter().enumerate().map(element).collect()
    }

    /// The same, where a list must be.
    pub(super) fn list(&self, key: &str) -> Vec<Self> {
        let Some(field) = self.field(key) else { return Vec::new() };
        if !field.value.is_array() {
            field.complain(expected("a list", field.value));
        }
        field.elements()
    }

    /// A text; an empty one says nothing.
    pub(super) fn text(&self, key: &str) -> Option<&'a str> {
        let field = self.field(key)?;
        let text = field.value.as_str();
        if text.is_none() {
            field.complain(expected("a text in quotes", field.value));
        }
        text.filter(|text| !text.is_empty())
    }

    /// Complains unless there is something under a key.
    pub(super) fn require(&self, key: &str, example: &str) {
        if self.field(key).is_none_or(|field| field.value.as_str() == Some("")) {
            self.complain(format!("there is no `{key}`; add one, such as \"{key}\": {example}, or export it anew"));
        }
    }

    pub(super) fn boolean(&self, key: &str) -> Option<bool> {
        let field = self.field(key)?;
        let value = field.value.as_bool();
        if value.is_none() {
            field.complain(expected("true or false", field.value));
        }
        value
    }

    /// A whole number, also one that is written as 100.0.
    pub(super) fn integer(&self, key: &str) -> Option<i64> {
        let field = self.field(key)?;
        let whole = |number: &f64| number.fract() == 0.0 && number.abs() < 9e15;
        #[expect(clippy::cast_possible_truncation, reason = "whole, and below 2^53")]
        let number = field.value.as_i64().or_else(|| field.value.as_f64().filter(whole).map(|number| number as i64));
        if number.is_none() {
            field.complain(expected("a whole number", field.value));
        }
        number
    }

    pub(super) fn address(&self, key: &str) -> Option<IpAddr> {
        let text = self.text(key)?;
        let address = text.parse().ok();
        if address.is_none() {
            self.wrong(key, "an address such as \"203.0.113.1\"");
        }
        address
    }

    /// An address with the length of its prefix; a bare one stands for itself alone.
    pub(super) fn net(&self, key: &str, example: &str) -> Option<IpNet> {
        let text = self.text(key)?;
        let net = text.parse().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        if net.is_none() {
            self.wrong(key, &format!("an address with its prefix, such as \"{example}\""));
        }
        net
    }

    /// One of some words.
    pub(super) fn choice(&self, key: &str, words: &[&'static str]) -> Option<&'static str> {
        let text = self.text(key)?;
        let word = words.iter().copied().find(|word| *word == text);
        if word.is_none() {
            let list: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
            self.wrong(key, &list.join(" or "));
        }
        word
    }

    fn wrong(&self, key: &str, wanted: &str) {
        self.field(key).iter().for_each(|field| field.complain(expected(wanted, field.value)));
    }
}

/// What is said of a value of another kind than it must be.
pub(super) fn expected(wanted: &str, value: &Value) -> String {
    format!("expected {wanted}, found {}; write that, or export it anew", shown(value))
}

/// A value in few words that move no terminal's cursor.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => format!("\"{}\"", brief(text, 40)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// The beginning of a text, escaped; but quotes end no comment, and people use them.
pub(super) fn brief(text: &str, most: usize) -> String {
    let begun: String = text.chars().take(most).collect();
    let rest = if begun.len() < text.len() { "…" } else { "" };
    format!("{}{rest}", plain(begun).replace("\\'", "'").replace("\\\"", "\""))
}
