//! Generates data and expressions of the supported subset. Operators get values of unexpected types on purpose:
//! evaluators differ most in the coercions of JavaScript.

use serde_json::{Map, Value, json};

/// A seeded random generator, with the local names that are in scope.
pub struct Generator {
    state: u64,
    locals: Vec<String>,
}

const KEYS: [&str; 9] = ["a", "b", "items", "name", "n", "on", "x-y", "10", "2"];
const TEXTS: [&str; 16] = [
    "",
    "a",
    "abc",
    "0",
    "12",
    " 7 ",
    "1e3",
    "-5.5",
    "0x1f",
    "true",
    "null",
    "Ärger ß",
    "\u{1F600}b",
    "a,b,,c",
    "NaN",
    "x\ny",
];
const NUMBERS: [&str; 16] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "7",
    "10",
    "0.1",
    "1.5",
    "-2.5",
    "100",
    "1e21",
    "1e-7",
    "4294967296",
    "2147483648",
    "123456789.125",
];
const BINARY: [&str; 22] = [
    "+", "-", "*", "/", "%", "**", "<", "<=", ">", ">=", "==", "!=", "===", "!==", "&", "|", "^", "<<", ">>", ">>>",
    "+", "===",
];

impl Generator {
    pub fn new(seed: u64) -> Generator {
        let mut generator = Generator {
            state: seed,
            locals: Vec::new(),
        };
        // The sequences of neighbouring seeds must not overlap.
        let (high, low) = (generator.random(1 << 32) as u64, generator.random(1 << 32) as u64);
        generator.state = (high << 32) | low;
        generator
    }

    fn random(&mut self, bound: usize) -> usize {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.random(from.len())]
    }

    /// The values of the roots.
    pub fn data(&mut self) -> Value {
        let nodes = json!({ "fetch": self.value(3), "x-y": self.value(2) });
        json!({ "trigger": self.object(3), "context": { "data": nodes }, "vars": self.object(2), "spec": self.value(2) })
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.random(if depth == 0 { 7 } else { 12 }) {
            0 => Value::Null,
            1 => Value::Bool(self.random(2) == 0),
            2 | 3 => Value::from(self.pick(&TEXTS)),
            4 => json!(self.random(20) as i64 - 5),
            5 => json!((self.random(4000) as f64 - 1000.0) / 8.0),
            6 => json!(9_007_199_254_740_993_u64 + self.random(9) as u64),
            7..=9 => self.object(depth - 1),
            _ => (0..self.random(5)).map(|_| self.value(depth - 1)).collect(),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut map = Map::new();
        for _ in 0..1 + self.random(5) {
            let key = self.pick(&KEYS).to_owned();
            map.insert(key, self.value(depth.saturating_sub(1)));
        }
        Value::Object(map)
    }

    pub fn expression(&mut self) -> String {
        let depth = 1 + self.random(4);
        self.any(depth)
    }

    fn any(&mut self, depth: usize) -> String {
        if depth == 0 {
            return self.leaf();
        }
        let below = depth - 1;
        match self.random(20) {
            0..=3 => self.leaf(),
            4..=7 => {
                let operator = self.pick(&BINARY);
                let (left, right) = (self.any(below), self.any(below));
                format!("({left}) {operator} ({right})")
            }
            8 | 9 => {
                let operator = self.pick(&["&&", "||", "??"]);
                let (left, right) = (self.any(below), self.any(below));
                format!("({left}) {operator} ({right})")
            }
            10 => {
                let (test, then, otherwise) = (self.any(below), self.any(below), self.any(below));
                format!("({test}) ? ({then}) : ({otherwise})")
            }
            11 => {
                let operator = self.pick(&["!", "-", "+", "~", "typeof ", "!!", "void "]);
                format!("{operator}({})", self.any(below))
            }
            12 | 13 => self.text_method(below),
            14..=16 => self.array_method(below),
            17 => self.builtin(below),
            18 => self.literal(below),
            _ => {
                let (object, key) = (self.any(below), self.any(below));
                match self.random(3) {
                    0 => format!("({object})?.[{key}]"),
                    1 => format!("'{}' in ({object})", self.pick(&KEYS)),
                    _ => format!("({object})[{key}]"),
                }
            }
        }
    }

    fn leaf(&mut self) -> String {
        match self.random(12) {
            0 | 1 => self.pick(&NUMBERS).to_owned(),
            2 | 3 => self.text(),
            4 => self
                .pick(&["null", "undefined", "true", "false", "NaN", "Infinity"])
                .to_owned(),
            5 | 6 if !self.locals.is_empty() => {
                let at = self.random(self.locals.len());
                let local = self.locals[at].clone();
                match self.random(2) {
                    0 => local,
                    _ => format!("{local}?.{}", self.pick(&["a", "length", "name", "n"])),
                }
            }
            _ => self.path(),
        }
    }

    fn text(&mut self) -> String {
        let text = self.pick(&TEXTS).to_owned();
        Value::String(text).to_string()
    }

    fn path(&mut self) -> String {
        let root = self.pick(&[
            "trigger",
            "trigger",
            "vars",
            "spec",
            "context.data.fetch",
            "context.data['x-y']",
        ]);
        let mut path = root.to_owned();
        for _ in 0..self.random(4) {
            let step = match self.random(8) {
                0 => format!("['{}']", self.pick(&KEYS)),
                1 => format!("[{}]", self.random(3)),
                2 => "?.length".to_owned(),
                3 => format!("?.[{}]", self.random(3)),
                _ => format!("?.{}", self.pick(&["a", "b", "items", "name", "n", "on"])),
            };
            path.push_str(&step);
        }
        path
    }

    fn text_method(&mut self, depth: usize) -> String {
        let on = match self.random(3) {
            0 => self.text(),
            1 => format!("String({})", self.any(depth)),
            _ => format!("({})", self.any(depth)),
        };
        let dot = self.pick(&[".", "?."]);
        let small = |generator: &mut Generator| (generator.random(9) as i64 - 3).to_string();
        match self.random(12) {
            0 => format!(
                "{on}{dot}{}()",
                self.pick(&["trim", "trimStart", "trimEnd", "toUpperCase", "toLowerCase"])
            ),
            1 => format!("{on}{dot}{}()", self.pick(&["toString", "valueOf"])),
            2 | 3 => {
                let method = self.pick(&["includes", "indexOf", "lastIndexOf", "startsWith", "endsWith", "concat"]);
                format!("{on}{dot}{method}({})", self.any(depth))
            }
            4 | 5 => {
                let method = self.pick(&["slice", "substring", "substr"]);
                format!("{on}{dot}{method}({}, {})", small(self), self.leaf())
            }
            6 => {
                let method = self.pick(&["at", "charAt", "charCodeAt", "codePointAt"]);
                format!("{on}{dot}{method}({})", self.leaf())
            }
            7 => format!("{on}{dot}split({})", self.pick(&["','", "''", "' '", "'b', 2", ""])),
            8 => {
                let method = self.pick(&["padStart", "padEnd"]);
                format!("{on}{dot}{method}({}, {})", self.random(9), self.text())
            }
            9 => format!("{on}{dot}repeat({})", self.random(4)),
            10 => {
                let method = self.pick(&["replace", "replaceAll"]);
                let with = self.pick(&["'-'", "'[$&]'", "'$$'", "\"$`|$'\"", "''"]);
                format!("{on}{dot}{method}({}, {with})", self.text())
            }
            _ => {
                let parts = (self.any(depth), self.any(depth));
                format!("`${{{}}}-${{{}}}`", parts.0, parts.1)
            }
        }
    }

    fn array(&mut self, depth: usize) -> String {
        match self.random(4) {
            0 => self.literal(depth),
            1 => {
                let function = self.pick(&["keys", "values", "entries"]);
                format!("Object.{function}({})", self.path())
            }
            2 => format!("(Array.isArray({0}) ? {0} : [1, 'b', null])", self.path()),
            _ => format!("({} ?? [])", self.path()),
        }
    }

    fn function(&mut self, depth: usize, parameters: &[&str]) -> String {
        let level = self.locals.len();
        let names: Vec<String> = parameters.iter().map(|name| format!("{name}{level}")).collect();
        self.locals.extend(names.iter().cloned());
        let body = self.any(depth);
        self.locals.truncate(level);
        format!("({}) => ({body})", names.join(", "))
    }

    fn array_method(&mut self, depth: usize) -> String {
        let on = self.array(depth);
        match self.random(12) {
            0..=2 => {
                let method = self.pick(&["map", "filter", "some", "every", "find", "findIndex", "flatMap"]);
                let function = self.function(depth, &["x", "i"]);
                format!("{on}.{method}({function})")
            }
            3 => {
                let method = self.pick(&["findLast", "findLastIndex"]);
                let function = self.function(depth, &["x"]);
                format!("{on}.{method}({function})")
            }
            4 | 5 => {
                let method = self.pick(&["reduce", "reduceRight"]);
                let (function, start) = (self.function(depth, &["sum", "x"]), self.leaf());
                match self.random(3) {
                    0 => format!("{on}.{method}({function})"),
                    _ => format!("{on}.{method}({function}, {start})"),
                }
            }
            6 => format!(
                "{on}.{}({})",
                self.pick(&["includes", "indexOf", "lastIndexOf"]),
                self.any(depth)
            ),
            7 => format!(
                "{on}.join({})",
                self.pick(&["", "','", "'; '", "null", "undefined", "0"])
            ),
            8 => format!("{on}.concat({}, {})", self.any(depth), self.any(depth)),
            9 => format!("{on}.slice({}, {})", self.random(5) as i64 - 2, self.leaf()),
            10 => format!(
                "{on}.{}",
                self.pick(&["flat()", "flat(2)", "toReversed()", "at(-1)", "length", "toString()"])
            ),
            _ => match self.random(2) {
                0 => format!("{on}.toSorted()"),
                _ => format!("{on}.map((x) => Number(x)).filter((x) => x === x).toSorted((a, b) => a - b)"),
            },
        }
    }

    fn builtin(&mut self, depth: usize) -> String {
        let argument = self.any(depth);
        match self.random(8) {
            0 => format!("{}({argument})", self.pick(&["Number", "String", "Boolean"])),
            1 => format!(
                "{}({argument})",
                self.pick(&["parseInt", "parseFloat", "isNaN", "isFinite"])
            ),
            2 => format!(
                "parseInt({argument}, {})",
                self.pick(&["10", "16", "2", "36", "0", "1"])
            ),
            3 => {
                let function = self.pick(&["isInteger", "isSafeInteger", "isNaN", "isFinite"]);
                format!("Number.{function}({argument})")
            }
            4 => {
                let function = self.pick(&[
                    "abs", "ceil", "floor", "round", "sign", "sqrt", "trunc", "fround", "clz32",
                ]);
                format!("Math.{function}({argument})")
            }
            5 => format!(
                "Math.{}({argument}, {})",
                self.pick(&["max", "min", "pow", "imul"]),
                self.any(depth)
            ),
            6 => format!("JSON.stringify({argument})"),
            _ => match self.random(2) {
                0 => format!("({argument}).toFixed?.({})", self.random(5)),
                _ => format!("({argument})?.hasOwnProperty?.('{}')", self.pick(&KEYS)),
            },
        }
    }

    fn literal(&mut self, depth: usize) -> String {
        if self.random(2) == 0 {
            let count = self.random(4);
            let items: Vec<String> = (0..count).map(|_| self.any(depth)).collect();
            return format!("[{}]", items.join(", "));
        }
        let parts: Vec<String> = (0..1 + self.random(3))
            .map(|_| match self.random(4) {
                // QuickJS spreads a string into no members, unlike the standard.
                0 => format!("...(typeof {0} === 'string' ? null : {0})", self.path()),
                1 => format!("[{}]: {}", self.leaf(), self.any(depth)),
                _ => format!("'{}': {}", self.pick(&KEYS), self.any(depth)),
            })
            .collect();
        match self.random(3) {
            0 => format!("Object.keys({{ {} }})", parts.join(", ")),
            1 => format!("[{{ {} }}]", parts.join(", ")),
            _ => format!("Object.entries({{ {} }})", parts.join(", ")),
        }
    }
}
