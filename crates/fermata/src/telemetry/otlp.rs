//! OTLP: spans as the protobuf message `ExportTraceServiceRequest`.
//!
//! Written by hand, because the message is small and the SDK of OpenTelemetry would bring about forty crates. Field numbers are
//! those of `opentelemetry/proto/trace/v1/trace.proto`; a test decodes the message with the published types.

use fermata_core::Timestamp;
use fermata_runtime::trace::{Attribute, Span};

/// The process that the spans come from.
pub struct Resource {
    pub service: String,
    pub version: &'static str,
    pub instance: String,
}

const KIND_INTERNAL: u64 = 1;
const KIND_CLIENT: u64 = 3;
const STATUS_OK: u64 = 1;
const STATUS_ERROR: u64 = 2;
/// Flags of a link: the context is sampled.
const SAMPLED: u32 = 1;

/// The message with these spans.
pub fn request(resource: &Resource, spans: &[Span]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |resource_spans| {
        resource_spans.message(1, |of| {
            let attributes = [
                ("service.name", resource.service.as_str()),
                ("service.version", resource.version),
                ("service.instance.id", resource.instance.as_str()),
            ];
            for (name, value) in attributes {
                of.message(1, |pair| pair.attribute(name, &value.into()));
            }
        });
        resource_spans.message(2, |scope_spans| {
            scope_spans.message(1, |scope| {
                scope.bytes(1, b"fermata");
                scope.bytes(2, resource.version.as_bytes());
            });
            for span in spans {
                scope_spans.message(2, |message| message.span(span));
            }
        });
    });
    request.0
}

/// A message of protobuf.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn span(&mut self, span: &Span) {
        self.bytes(1, &span.trace);
        self.bytes(2, &span.id);
        if let Some(parent) = &span.parent {
            self.bytes(4, parent);
        }
        self.bytes(5, span.name.as_bytes());
        self.number(6, if span.is_call { KIND_CLIENT } else { KIND_INTERNAL });
        self.fixed(7, nanos(span.start));
        self.fixed(8, nanos(span.end));
        for (name, value) in &span.attributes {
            self.message(9, |pair| pair.attribute(name, value));
        }
        if let Some(link) = &span.link {
            self.message(13, |message| {
                message.bytes(1, &link.trace);
                message.bytes(2, &link.span);
                message.fixed32(6, if link.sampled { SAMPLED } else { 0 });
            });
        }
        self.message(15, |status| match &span.failure {
            None => status.number(3, STATUS_OK),
            Some(code) => {
                status.bytes(2, code.as_bytes());
                status.number(3, STATUS_ERROR);
            }
        });
    }

    fn attribute(&mut self, name: &str, value: &Attribute) {
        self.bytes(1, name.as_bytes());
        self.message(2, |any| match value {
            Attribute::Text(text) => any.bytes(1, text.as_bytes()),
            Attribute::Number(number) => any.number(3, number.cast_unsigned()),
        });
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn fixed(&mut self, field: u64, number: u64) {
        self.varint(field << 3 | 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.varint(field << 3 | 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}

fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1000)
}
