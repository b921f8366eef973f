//! Confinement of the child, before it reads its first request.
//!
//! | step | what is not possible after it |
//! | --- | --- |
//! | privileges | root (the child runs as `nobody`) and all capabilities; none can be regained |
//! | Landlock | files, TCP ports, signals to other processes; a second defence behind the filter |
//! | limits | more than 256 MiB, descriptors beyond the standard three, files, core dumps |
//! | seccomp | every system call that is not listed below: no file, no socket, no process, no thread, no executable memory; only stdin can be read, only stdout and stderr can be written, so inherited descriptors are useless |
//!
//! A step that the system refuses is skipped and reported: the parent logs it with the first response. The deadline in the
//! parent does not depend on any of this.

use rustix::process::{Resource, Rlimit, setrlimit};

/// How much address space a child may use beyond what it has at its start.
const ADDRESS_SPACE: u64 = 256 * 1024 * 1024;

/// Takes all steps. Returns descriptions of those that failed.
pub(super) fn confine() -> Vec<String> {
    let mapped = mapped();
    let mut missing = Vec::new();
    #[cfg(target_os = "linux")]
    {
        linux::drop_privileges(&mut missing);
        linux::landlock(&mut missing);
    }
    limit_resources(mapped, &mut missing);
    #[cfg(target_os = "linux")]
    linux::filter(&mut missing);
    #[cfg(not(target_os = "linux"))]
    missing.push("system calls are filtered on Linux only".to_owned());
    missing
}

fn limit_resources(mapped: u64, missing: &mut Vec<String>) {
    let limits = [
        (Resource::Core, 0, "core dumps"),
        (Resource::Fsize, 0, "files"),
        // stdin, stdout and stderr are open already.
        (Resource::Nofile, 3, "descriptors"),
        (Resource::Nproc, 0, "processes"),
        (Resource::As, mapped.saturating_add(ADDRESS_SPACE), "memory"),
    ];
    for (resource, most, what) in limits {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        if let Err(error) = setrlimit(resource, limit) {
            missing.push(format!("no limit of {what}: {error}"));
        }
    }
}

/// Bytes of address space in use, as reported by the system. Allocators reserve much more than they use.
fn mapped() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').next().and_then(|pages| pages.parse::<u64>().ok());
    pages.map_or(4 << 30, |pages| pages * rustix::param::page_size() as u64)
}

#[cfg(target_os = "linux")]
mod linux {
    use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope};
    use rustix::{
        io,
        process::{DumpableBehavior, Signal, geteuid, set_dumpable_behavior, set_parent_process_death_signal},
        thread::{
            CapabilitySet, CapabilitySets, Gid, Uid, capabilities, clear_ambient_capability_set, set_capabilities,
            set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
        },
    };

    /// The user and group `nobody`.
    const NOBODY: u32 = 65534;

    pub(super) fn drop_privileges(missing: &mut Vec<String>) {
        if geteuid().is_root()
            && let Err(reason) = change_user()
        {
            missing.push(format!("it runs as root: {reason}"));
        }
        let none = CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        };
        let mut step = |what: &str, done: io::Result<()>| {
            if let Err(error) = done {
                missing.push(format!("{what}: {error}"));
            }
        };
        let _ = clear_ambient_capability_set(); // kernels before 4.3 have none
        step("it keeps its capabilities", set_capabilities(None, none));
        step("it may gain privileges", set_no_new_privs(true));
        let not_dumpable = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        step("it can be traced", not_dumpable);
        // Last: a change of the user resets it.
        let death = set_parent_process_death_signal(Some(Signal::KILL));
        step("it outlives its parent", death);
    }

    /// Changes the user and group to `nobody`, but only if the parent, which has the same capabilities, can still kill
    /// the child afterwards.
    fn change_user() -> Result<(), String> {
        let needed = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::KILL;
        let has = capabilities(None).map_err(|error| error.to_string())?;
        if !has.effective.contains(needed) {
            return Err("the capabilities SETUID, SETGID and KILL are needed to change that".to_owned());
        }
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        let changed = set_thread_groups(&[])
            .and_then(|()| set_thread_res_gid(group, group, group))
            .and_then(|()| set_thread_res_uid(user, user, user));
        changed.map_err(|error| error.to_string())
    }

    pub(super) fn landlock(missing: &mut Vec<String>) {
        let restricted = || -> Result<RulesetStatus, RulesetError> {
            // The crate leaves out what this kernel does not support.
            let rules = Ruleset::default()
                .handle_access(AccessFs::from_all(ABI::V6))?
                .handle_access(AccessNet::from_all(ABI::V6))?
                .scope(Scope::from_all(ABI::V6))?;
            Ok(rules.create()?.restrict_self()?.ruleset)
        };
        match restricted() {
            Ok(RulesetStatus::NotEnforced) => missing.push("this kernel has no Landlock".to_owned()),
            Ok(_) => {}
            Err(error) => missing.push(format!("no Landlock: {error}")),
        }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")))]
    pub(super) fn filter(missing: &mut Vec<String>) {
        missing.push("system calls are not filtered on this processor".to_owned());
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    pub(super) fn filter(missing: &mut Vec<String>) {
        if let Err(error) = seccomp() {
            missing.push(format!("system calls are not filtered: {error}"));
        }
    }

    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64"))]
    fn seccomp() -> Result<(), Box<dyn std::error::Error>> {
        use seccompiler::{
            BpfProgram, SeccompAction, SeccompCmpArgLen::Dword, SeccompCmpOp, SeccompCondition, SeccompFilter,
            SeccompRule, apply_filter,
        };
        /// The system calls for allocating, computing, waiting and exiting.
        const ALLOWED: [i64; 20] = [
            libc::SYS_brk,
            libc::SYS_clock_gettime,
            libc::SYS_clock_nanosleep,
            libc::SYS_exit,
            libc::SYS_exit_group,
            libc::SYS_futex,
            libc::SYS_getpid,
            libc::SYS_getrandom,
            libc::SYS_gettid,
            libc::SYS_gettimeofday,
            libc::SYS_madvise,
            libc::SYS_mremap,
            libc::SYS_munmap,
            libc::SYS_nanosleep,
            libc::SYS_restart_syscall,
            libc::SYS_rt_sigaction,
            libc::SYS_rt_sigprocmask,
            libc::SYS_rt_sigreturn,
            libc::SYS_sched_yield,
            libc::SYS_sigaltstack,
        ];
        let rule = |argument, operator, value: u32| -> Result<SeccompRule, seccompiler::BackendError> {
            SeccompRule::new(vec![SeccompCondition::new(argument, Dword, operator, value.into())?])
        };
        let (equal, executable) = (SeccompCmpOp::Eq, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64));
        let own = std::process::id();
        let mut rules: std::collections::BTreeMap<i64, Vec<SeccompRule>> =
            ALLOWED.into_iter().map(|call| (call, Vec::new())).collect();
        rules.insert(libc::SYS_read, vec![rule(0, equal.clone(), 0)?]);
        rules.insert(
            libc::SYS_write,
            vec![rule(0, equal.clone(), 1)?, rule(0, equal.clone(), 2)?],
        );
        rules.insert(libc::SYS_mmap, vec![rule(2, executable.clone(), 0)?]);
        rules.insert(libc::SYS_mprotect, vec![rule(2, executable, 0)?]);
        // `abort` uses it.
        rules.insert(libc::SYS_tgkill, vec![rule(0, equal, own)?]);
        let refused = SeccompAction::Errno(libc::EPERM as u32);
        let target = std::env::consts::ARCH.try_into()?;
        let filter = SeccompFilter::new(rules, refused, SeccompAction::Allow, target)?;
        let program: BpfProgram = filter.try_into()?;
        apply_filter(&program)?;
        Ok(())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::{
        fs::File,
        io::Read,
        net::{TcpListener, UdpSocket},
        os::unix::net::UnixDatagram,
        process::Command,
    };

    /// The variable that selects what the process of a test does: see [`inside`].
    const STEP: &str = "FERMATA_TEST_CONFINE";

    /// Runs [`inside`] in its own process with this step, and returns its output.
    fn outcome(step: &str) -> String {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox::confine::tests::inside", "--nocapture"])
            .env(STEP, step)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Takes a step and tries what must fail afterwards. Without the variable it does nothing.
    #[test]
    fn inside() {
        let Ok(step) = std::env::var(STEP) else { return };
        let mut inherited = File::open("/etc/hostname")
            .or_else(|_| File::open("/etc/passwd"))
            .unwrap();
        let mut missing = Vec::new();
        match step.as_str() {
            "landlock" => linux::landlock(&mut missing),
            "nothing" => {}
            _ => missing = confine(),
        }
        let errno = |result: std::io::Result<()>| match result {
            Ok(()) => "done".to_owned(),
            Err(error) => error.raw_os_error().map_or(error.to_string(), |code| code.to_string()),
        };
        let tried = [
            ("open", errno(File::open("/etc/passwd").map(drop))),
            ("inherited", errno(inherited.read(&mut [0; 1]).map(drop))),
            ("tcp", errno(TcpListener::bind("127.0.0.1:0").map(drop))),
            ("udp", errno(UdpSocket::bind("127.0.0.1:0").map(drop))),
            ("unix", errno(UnixDatagram::unbound().map(drop))),
            ("thread", errno(std::thread::Builder::new().spawn(|| {}).map(drop))),
            (
                "fork",
                errno(Command::new("/bin/true").spawn().map(|mut child| drop(child.wait()))),
            ),
        ];
        for (what, result) in tried {
            println!("<{what} {result}>");
        }
        println!("<missing {}>", missing.join("; "));
        // Memory can still be allocated.
        println!(
            "<allocated {}>",
            vec![1u8; 8 << 20].iter().filter(|byte| **byte == 1).count()
        );
        std::process::exit(0);
    }

    #[test]
    fn confined_child_cannot_use_files_sockets_or_processes() {
        let free = outcome("nothing");
        for what in ["open", "inherited", "tcp", "udp", "unix", "thread", "fork"] {
            assert!(free.contains(&format!("<{what} done>")), "the test itself: {free}");
        }
        let confined = outcome("all");
        for what in ["open", "inherited", "tcp", "udp", "unix", "thread", "fork"] {
            let refused = format!("<{what} {}>", libc::EPERM);
            assert!(confined.contains(&refused), "{what}: {confined}");
        }
        assert!(confined.contains("<allocated 8388608>"), "{confined}");
    }

    #[test]
    fn landlock_alone_denies_files() {
        let restricted = outcome("landlock");
        let refused = format!("<open {}>", libc::EACCES);
        let absent = restricted.contains("<missing this kernel has no Landlock>");
        assert!(absent || restricted.contains(&refused), "{restricted}");
    }
}
