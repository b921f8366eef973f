//! The child: reads requests from stdin and writes responses to stdout.

use super::{
    cel::Cel,
    confine::confine,
    js::Engine,
    logic,
    protocol::{Answer, LONGEST_FRAME, Outcome, Question, frame},
};
use fermata_expr::SandboxLanguage;
use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

/// The command `fermata sandbox`: responds until stdin ends. It confines the whole process, so the process must do nothing else.
pub fn serve_child() -> ExitCode {
    let missing = confine();
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock(), missing) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(input: &mut impl Read, output: &mut impl Write, mut missing: Vec<String>) -> io::Result<()> {
    let fail = |error: rquickjs::Error| io::Error::other(error.to_string());
    let first = Engine::new(None).map_err(fail)?;
    let weight = first.weight();
    let (mut spare, mut cel) = (Some(first), None);
    let mut text = Vec::new();
    while read_frame(input, &mut text)? {
        let question: Question<'_> = serde_json::from_slice(&text)?;
        let outcome = match question.language {
            SandboxLanguage::Js => {
                let engine = spare
                    .take()
                    .map_or_else(|| Engine::new(Some(weight)), Ok)
                    .map_err(fail)?;
                engine.answer(&question, &question.members()?)
            }
            SandboxLanguage::JsonLogic => logic::answer(&question),
            SandboxLanguage::Cel => cel.get_or_insert_with(Cel::new).answer(&question, &question.members()?),
        };
        output.write_all(&answer(question.id, outcome, std::mem::take(&mut missing))?)?;
        output.flush()?;
        // The next engine is created while the parent handles the response.
        if spare.is_none() {
            spare = Some(Engine::new(Some(weight)).map_err(fail)?);
        }
        if text.capacity() > 1024 * 1024 {
            text = Vec::new();
        }
    }
    Ok(())
}

fn answer(id: u64, outcome: Outcome, missing: Vec<String>) -> io::Result<Vec<u8>> {
    let (value, error) = match outcome {
        Ok(value) => (value, None),
        Err(error) => (None, Some(error)),
    };
    frame(&Answer {
        id,
        value,
        error,
        missing,
    })
}

/// Reads one frame; false at the end of the input.
fn read_frame(input: &mut impl Read, text: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
        read => read?,
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST_FRAME {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the frame is too long"));
    }
    text.clear();
    let read = input.take(length as u64).read_to_end(text)?;
    match read == length {
        true => Ok(true),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
