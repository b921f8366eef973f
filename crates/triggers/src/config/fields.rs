//! Reads the keys of a configuration object and collects every problem, each with the JSON pointer of its place.

use super::Problem;
use fermata_core::duration;
use serde_json::{Map, Value};
use std::time::Duration;

/// An object that is being read. [`Fields::finish`] reports the keys that were not asked for.
pub(crate) struct Fields<'a> {
    object: &'a Map<String, Value>,
    pointer: String,
    known: Vec<&'static str>,
    problems: Vec<Problem>,
}

impl<'a> Fields<'a> {
    /// Begins to read `value`. Anything but an object is a problem.
    pub(crate) fn of(value: &'a Value, pointer: &str) -> Result<Self, Vec<Problem>> {
        match value {
            Value::Object(object) => Ok(Self {
                object,
                pointer: pointer.to_owned(),
                known: Vec::new(),
                problems: Vec::new(),
            }),
            _ => Err(vec![Problem::new(pointer, "must be an object")]),
        }
    }

    /// The value of a key, if it is there and not null.
    pub(crate) fn value(&mut self, key: &'static str) -> Option<&'a Value> {
        self.known.push(key);
        self.object.get(key).filter(|value| !value.is_null())
    }

    /// The text of a key.
    pub(crate) fn text(&mut self, key: &'static str) -> Option<&'a str> {
        match self.value(key)? {
            Value::String(text) if !text.trim().is_empty() => Some(text),
            _ => {
                self.wrong(key, "must be a text that is not empty");
                None
            }
        }
    }

    /// One of the named values.
    pub(crate) fn one_of<T: Copy>(&mut self, key: &'static str, choices: &[(&'static str, T)]) -> Option<T> {
        let text = self.text(key)?;
        let found = choices.iter().find(|(name, _)| *name == text);
        if found.is_none() {
            let names = choices.iter().map(|(name, _)| *name);
            let meant = match fermata_expr::nearest(text, names.clone()) {
                Some(name) => format!("; did you mean `{name}`?"),
                None => String::new(),
            };
            let names = names.collect::<Vec<_>>().join(", ");
            self.wrong(key, &format!("must be one of {names}{meant}"));
        }
        found.map(|(_, value)| *value)
    }

    /// A duration such as `15m`, at least `least` long.
    pub(crate) fn duration(&mut self, key: &'static str, least: Duration) -> Option<Duration> {
        if let Some(Value::Number(number)) = self.object.get(key) {
            self.known.push(key);
            self.wrong(key, &format!("must have a unit, such as `{number}s` or `{number}m`"));
            return None;
        }
        let text = self.text(key)?;
        match duration::parse(text) {
            Ok(found) if found >= least => return Some(found),
            Ok(_) => self.wrong(key, &format!("must be at least {}", duration::exact(least))),
            Err(error) => self.wrong(key, &format!("must be a duration: {error}")),
        }
        None
    }

    /// The part of the object below a key, read by `read`.
    pub(crate) fn part<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value, &str) -> Result<T, Vec<Problem>>,
    ) -> Option<T> {
        let value = self.value(key)?;
        match read(value, &format!("{}/{key}", self.pointer)) {
            Ok(part) => Some(part),
            Err(problems) => {
                self.problems.extend(problems);
                None
            }
        }
    }

    /// Records a problem with the value of a key.
    pub(crate) fn wrong(&mut self, key: &str, message: &str) {
        let pointer = format!("{}/{}", self.pointer, key.replace('~', "~0").replace('/', "~1"));
        self.problems.push(Problem::new(&pointer, message));
    }

    /// Records a problem with the object itself.
    pub(crate) fn wrong_whole(&mut self, message: &str) {
        self.problems.push(Problem::new(&self.pointer.clone(), message));
    }

    /// Reports keys that no reader asked for. `Ok` if there was no problem at all.
    pub(crate) fn finish(mut self) -> Result<(), Vec<Problem>> {
        let unknown: Vec<&String> = self
            .object
            .keys()
            .filter(|key| !self.known.contains(&key.as_str()))
            .collect();
        for key in unknown {
            let message = match fermata_expr::nearest(key, self.known.iter().copied()) {
                Some(name) => format!("is not a known key; did you mean `{name}`?"),
                None if self.known.is_empty() => "is not a known key; there are none here".to_owned(),
                None => format!("is not a known key; the keys are {}", self.known.join(", ")),
            };
            self.wrong(key, &message);
        }
        match self.problems.is_empty() {
            true => Ok(()),
            false => Err(self.problems),
        }
    }
}
