//! The child: reads questions from stdin, answers on stdout, and has nothing else.

use super::{
    js::{Engine, Outcome},
    protocol::{Answer, LONGEST_FRAME, Language, Question, frame},
};
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::{
    io::{self, Read, Write},
    process::ExitCode,
};

/// How much address space a child may take beyond what it has when it starts.
const ADDRESS_SPACE: u64 = 256 * 1024 * 1024;

/// What `fermata sandbox` does: answers until stdin ends. Never call it in a process that does something else too.
pub fn serve_child() -> ExitCode {
    confine();
    match serve(&mut io::stdin().lock(), &mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn serve(input: &mut impl Read, output: &mut impl Write) -> io::Result<()> {
    let fail = |error: rquickjs::Error| io::Error::other(error.to_string());
    let mut engine = Engine::new(None).map_err(fail)?;
    let weight = engine.weight();
    let mut text = Vec::new();
    while read_frame(input, &mut text)? {
        let question: Question<'_> = serde_json::from_slice(&text)?;
        let outcome = match question.language {
            Language::Js => engine.answer(&question),
        };
        output.write_all(&answer(question.id, outcome)?)?;
        output.flush()?;
        // While the parent is busy with the answer.
        engine = Engine::new(Some(weight)).map_err(fail)?;
        if text.capacity() > 1024 * 1024 {
            text = Vec::new();
        }
    }
    Ok(())
}

fn answer(id: u64, outcome: Outcome) -> io::Result<Vec<u8>> {
    let (value, error) = match outcome {
        Ok(value) => (value, None),
        Err(trouble) => (None, Some(trouble)),
    };
    frame(&Answer { id, value, error })
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

/// Gives up what is not needed. What the system refuses is left as it is: the parent's deadline does not rely on it.
fn confine() {
    let limit = |resource, most: u64| {
        let most = Some(most);
        let _ = setrlimit(
            resource,
            Rlimit {
                current: most,
                maximum: most,
            },
        );
    };
    limit(Resource::Core, 0);
    limit(Resource::Fsize, 0);
    // stdin, stdout and stderr are open already, and nothing else can be opened.
    let mapped = mapped();
    limit(Resource::Nofile, 3);
    limit(Resource::Nproc, 0);
    limit(Resource::As, mapped.saturating_add(ADDRESS_SPACE));
    #[cfg(target_os = "linux")]
    {
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let _ = rustix::thread::set_no_new_privs(true);
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
}

/// Bytes of address space in use, as far as the system tells. Allocators reserve much more than they use.
fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.map_or(4 << 30, |pages| pages * rustix::param::page_size() as u64)
}
