//! What is printed on a terminal: tables fit its width, and statuses have colours. The terminal is a pseudo-terminal.

use crate::support::{Process, Server};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};
use serde_json::json;
use std::{
    ffi::OsStr,
    fs::File,
    io::Read,
    os::unix::ffi::OsStrExt,
    process::{Command, Stdio},
};

/// What a call prints on a terminal with this many columns.
fn on_terminal(columns: u16, arguments: &[&str], environment: &[(&str, &str)]) -> String {
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a pseudo-terminal");
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let name = ptsname(&controller, Vec::new()).unwrap();
    let path = OsStr::from_bytes(name.as_bytes());
    let terminal = File::options().read(true).write(true).open(path).unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&terminal, size).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_fermata"));
    command.args(arguments).env_clear().envs(environment.iter().copied());
    let mut child = command
        .stdin(Stdio::null())
        .stdout(terminal)
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    drop(command); // it holds the terminal open
    let (mut controller, mut printed) = (File::from(controller), Vec::new());
    let mut buffer = [0; 4096];
    // The end is an error here: no process has the terminal open.
    while let Ok(count @ 1..) = controller.read(&mut buffer) {
        printed.extend_from_slice(&buffer[..count]);
    }
    assert!(child.wait().unwrap().success());
    String::from_utf8(printed).expect("UTF-8").replace("\r\n", "\n")
}

/// A text without its colours.
fn plain(text: &str) -> String {
    let mut parts = text.split('\x1b');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        all + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

#[tokio::test]
async fn tables_fit_the_terminal_and_statuses_have_colours() {
    let server = Server::start(&[]);
    let message = "the payment was declined because the card is not known to the bank ".repeat(3);
    let mut runs = Vec::new();
    for (id, action) in [
        ("a-workflow-with-quite-a-long-name", "core.echo"),
        ("another-workflow-with-quite-a-long-name", "core.fail"),
    ] {
        let node = json!({ "id": "a", "actionType": action, "parameters": { "message": message } });
        let document = json!({ "id": id, "displayName": id, "startNode": "a", "nodes": [node] });
        server.publish(&document).await;
        let run = server.execute(id, &json!({})).await;
        server.ended(&run).await;
        runs.push(run);
    }
    let list = ["executions", "list"];
    let server_url = ("FERMATA_SERVER", server.url.as_str());
    for columns in [80, 100, 160] {
        let shown = on_terminal(columns, &list, &[server_url]);
        let (lines, lost) = (plain(&shown), "…");
        assert_eq!(lines.lines().count(), 3, "{shown}");
        for line in lines.lines() {
            let width = line.chars().count();
            assert!(width <= columns.into(), "{width} of {columns}: {line}");
        }
        assert!(lines.contains(lost), "the message does not fit: {lines}");
        for piece in [&runs[0], &runs[1], "\x1b[32mSucceeded\x1b[0m", "\x1b[31mFailed\x1b[0m"] {
            assert!(shown.contains(piece), "{piece}: {shown}");
        }
    }
    let wide = plain(&on_terminal(400, &list, &[server_url]));
    assert!(wide.contains(message.trim()) && !wide.contains('…'), "{wide}");
    let without_colours = on_terminal(80, &list, &[server_url, ("NO_COLOR", "1")]);
    assert!(!without_colours.contains('\x1b'), "{without_colours}");
    // Not a terminal: nothing is cut, and nothing has a colour.
    let piped = Process::start(&list, &[server_url], "").output().stdout;
    assert!(piped.contains(message.trim()) && !piped.contains('\x1b'), "{piped}");
    let pairs = on_terminal(80, &["executions", "get", &runs[1]], &[server_url]);
    assert!(pairs.contains("\x1b[31mFailed\x1b[0m\n"), "{pairs}");
}
