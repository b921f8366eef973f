//! A strict parser of the text format of Prometheus (0.0.4). It panics on everything that the format or its conventions forbid.

use std::collections::{BTreeMap, BTreeSet};

pub type Labels = BTreeMap<String, String>;

/// What was scraped.
#[derive(Debug, Default)]
pub struct Scrape {
    /// The kinds by metric.
    pub kinds: BTreeMap<String, String>,
    /// The values by the name of the sample and its labels.
    pub samples: BTreeMap<(String, Labels), f64>,
}

impl Scrape {
    /// Parses and checks a text.
    #[track_caller]
    pub fn parse(text: &str) -> Scrape {
        assert!(text.ends_with('\n') && !text.contains("\n\n") && !text.contains('\r'));
        let mut scrape = Scrape::default();
        let (mut helped, mut current, mut closed) = (None, String::new(), BTreeSet::new());
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').expect(line);
                assert!(!help.is_empty() && help.ends_with('.'), "{line}");
                helped = Some(name.to_owned());
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect(line);
                assert_eq!(helped.take().as_deref(), Some(name), "HELP stands before TYPE: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(is_name(name, true), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
                assert!(closed.insert(name.to_owned()), "a metric is announced twice: {line}");
                assert!(scrape.kinds.insert(name.to_owned(), kind.to_owned()).is_none());
                current = name.to_owned();
            } else {
                let (name, labels, value) = sample(line);
                let family = match scrape.kinds.get(&current).map(String::as_str) {
                    Some("histogram") => ["_bucket", "_sum", "_count"]
                        .iter()
                        .find_map(|suffix| name.strip_suffix(suffix))
                        .expect(line),
                    _ => &name,
                };
                assert_eq!(family, current, "samples follow their TYPE: {line}");
                assert!(value >= 0.0, "{line}");
                let earlier = scrape.samples.insert((name.clone(), labels), value);
                assert!(earlier.is_none(), "a sample stands twice: {line}");
            }
        }
        scrape.check_histograms();
        scrape
    }

    /// Buckets are cumulative, the last one has no bound and equals the count, and every series has a sum.
    fn check_histograms(&self) {
        for name in self
            .kinds
            .iter()
            .filter(|(_, kind)| *kind == "histogram")
            .map(|(name, _)| name)
        {
            let mut series: BTreeMap<Labels, Vec<(f64, f64)>> = BTreeMap::new();
            for ((_, labels), value) in self
                .samples
                .iter()
                .filter(|((of, _), _)| *of == format!("{name}_bucket"))
            {
                let mut labels = labels.clone();
                let bound = labels.remove("le").expect("a bucket has a bound");
                let bound = if bound == "+Inf" {
                    f64::INFINITY
                } else {
                    bound.parse().unwrap()
                };
                series.entry(labels).or_default().push((bound, *value));
            }
            for (labels, mut buckets) in series {
                buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
                assert!(buckets.len() >= 5, "{name}");
                assert!(
                    buckets
                        .windows(2)
                        .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
                    "{name}{labels:?}"
                );
                let (last, count) = *buckets.last().unwrap();
                assert_eq!(last, f64::INFINITY);
                assert_eq!(self.samples[&(format!("{name}_count"), labels.clone())], count);
                assert!(self.samples.contains_key(&(format!("{name}_sum"), labels)), "{name}");
            }
        }
    }

    /// The value of a sample; 0 if it is not there.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let key = (name.to_owned(), labels.collect());
        self.samples.get(&key).copied().unwrap_or(0.0)
    }

    /// All label values.
    pub fn label_values(&self) -> BTreeSet<&str> {
        let labels = self.samples.keys().flat_map(|(_, labels)| labels.values());
        labels.map(String::as_str).collect()
    }
}

fn is_name(text: &str, of_metric: bool) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (of_metric && c == ':');
    text.starts_with(first) && text.chars().all(|c| first(c) || c.is_ascii_digit())
}

fn sample(line: &str) -> (String, Labels, f64) {
    let name_end = line.find(['{', ' ']).expect(line);
    let (name, mut rest) = line.split_at(name_end);
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").expect(line);
            assert!(is_name(label, false), "{line}");
            let (mut value, mut chars, mut end) = (String::new(), after.char_indices(), None);
            while let Some((at, c)) = chars.next() {
                match c {
                    '"' => {
                        end = Some(at + 1);
                        break;
                    }
                    '\\' => value.push(match chars.next().expect(line).1 {
                        'n' => '\n',
                        c @ ('\\' | '"') => c,
                        other => panic!("an unknown escape {other}: {line}"),
                    }),
                    c => value.push(c),
                }
            }
            assert!(!value.is_empty(), "{line}");
            assert!(
                labels.insert(label.to_owned(), value).is_none(),
                "a label stands twice: {line}"
            );
            rest = &after[end.expect(line)..];
            match rest.strip_prefix(',') {
                Some(more) => rest = more,
                None => break,
            }
        }
        rest = rest.strip_prefix('}').expect(line);
    }
    let value = rest.strip_prefix(' ').expect(line);
    (name.to_owned(), labels, value.parse().expect(line))
}
