//! PostgreSQL servers of a test's own, which can be killed, restarted and promoted, and what stands before them: a
//! pooler, and an address that moves and cuts.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::kit::{Folder, Process, free_port, wait_for};

/// Where the server programs are; `make test` installs them.
fn programs() -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/with-postgres.sh");
    let found = Command::new(script).arg("--find").output().expect("runs");
    assert!(found.status.success(), "no PostgreSQL server programs: run scripts/setup.sh test");
    String::from_utf8_lossy(&found.stdout).trim().into()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A program that refuses to run as root, as the user `postgres` where we are root.
fn as_postgres(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--init-groups"]).arg(program);
    command
}

fn done(mut command: Command) {
    let done = command.current_dir("/").stdin(Stdio::null()).output().expect("runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A folder of the user under whom the servers run.
fn folder() -> Folder {
    let folder = Folder::new();
    if is_root() {
        let mut command = Command::new("chown");
        command.arg("postgres").arg(&folder.0);
        done(command);
    }
    folder
}

/// One server with its data. What it has acknowledged outlives its death, though not the machine's.
#[derive(Debug)]
pub struct Cluster {
    pub port: u16,
    process: Process,
    folder: Folder,
}

impl Cluster {
    pub fn start() -> Self {
        let folder = folder();
        let mut command = as_postgres(&programs().join("initdb"));
        command.arg("-D").arg(folder.0.join("data"));
        command.args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        done(command);
        let port = free_port();
        let process = spawn(&folder, port);
        let this = Self { port, process, folder };
        this.ready();
        this
    }

    /// A standby that streams from this server. While it is synchronous, nothing is acknowledged that it lacks.
    pub fn standby(&self, is_synchronous: bool) -> Self {
        let folder = folder();
        let mut command = as_postgres(&programs().join("pg_basebackup"));
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", "-R"]);
        command.args(["--checkpoint=fast", "--no-sync", "-X", "stream", "-D"]);
        command.arg(folder.0.join("data"));
        done(command);
        let port = free_port();
        let process = spawn(&folder, port);
        let this = Self { port, process, folder };
        this.ready();
        if is_synchronous {
            self.run("ALTER SYSTEM SET synchronous_standby_names = '*'");
            self.run("SELECT pg_reload_conf()");
        }
        let states = "SELECT COUNT(*) FROM pg_stat_replication WHERE state = 'streaming'
                        AND (sync_state = 'sync' OR current_setting('synchronous_standby_names') = '')";
        wait_for("the standby to stream", || (self.number(states) == 1).then_some(()));
        this
    }

    pub fn promote(&self) {
        self.run("SELECT pg_promote()");
        let recovering = "SELECT CAST(pg_is_in_recovery() AS INT)::BIGINT";
        wait_for("the promotion", || (self.number(recovering) == 0).then_some(()));
    }

    pub fn url(&self, database: &str) -> String {
        url(self.port, database)
    }

    /// Dies as by a crash: nothing is written on the way out.
    pub fn kill(&mut self) {
        self.end(rustix::process::Signal::QUIT);
    }

    /// An orderly end that does not wait for clients.
    pub fn stop(&mut self) {
        self.end(rustix::process::Signal::INT);
    }

    fn end(&mut self, signal: rustix::process::Signal) {
        self.process.signal(signal);
        wait_for("the server's end", || self.process.0.try_wait().expect("is a child"));
    }

    pub fn start_again(&mut self) {
        self.process = spawn(&self.folder, self.port);
        self.ready();
    }

    fn ready(&self) {
        wait_for("PostgreSQL", || {
            crate::shared::try_number(&self.url("postgres"), "SELECT 1::BIGINT").map(|_| ())
        });
    }

    pub fn run(&self, sql: &str) {
        crate::shared::run(&self.url("postgres"), sql.to_owned());
    }

    fn number(&self, sql: &'static str) -> i64 {
        crate::shared::number(&self.url("postgres"), sql)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if matches!(self.process.0.try_wait(), Ok(None)) {
            // Its children would outlive a SIGKILL of the first process.
            self.kill();
        }
    }
}

pub fn url(port: u16, database: &str) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{database}")
}

fn spawn(folder: &Folder, port: u16) -> Process {
    let log = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.0.join("server.log"))
        .expect("a log");
    let mut command = as_postgres(&programs().join("postgres"));
    command.arg("-D").arg(folder.0.join("data")).args(["-p", &port.to_string()]);
    for setting in [
        "listen_addresses=127.0.0.1",
        "unix_socket_directories=",
        // The machine does not lose its power in a test; each commit is still written before it is acknowledged.
        "fsync=off",
        "max_connections=120",
    ] {
        command.args(["-c", setting]);
    }
    let errors = log.try_clone().expect("the same log");
    command.current_dir("/").stdin(Stdio::null()).stdout(log).stderr(errors);
    Process(command.spawn().expect("PostgreSQL starts"))
}

/// PgBouncer in transaction mode: each transaction may meet another session.
#[derive(Debug)]
pub struct Pooler {
    pub port: u16,
    _process: Process,
    _folder: Folder,
}

impl Pooler {
    pub fn before(cluster: &Cluster) -> Self {
        let program =
            ["/usr/sbin/pgbouncer", "/opt/homebrew/bin/pgbouncer", "/usr/local/bin/pgbouncer"]
                .into_iter()
                .map(Path::new)
                .find(|path| path.exists())
                .expect("pgbouncer is missing: run scripts/setup.sh test");
        let folder = folder();
        let port = free_port();
        let at = folder.0.display();
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 8\n\
             max_client_conn = 200\nunix_socket_dir =\nlogfile = {at}/pgbouncer.log\npidfile = {at}/pgbouncer.pid\n",
            cluster.port
        );
        let path = folder.0.join("pgbouncer.ini");
        std::fs::write(&path, text).expect("writes");
        let process = as_postgres(program)
            .arg("-q")
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer starts");
        let this = Self { port, _process: Process(process), _folder: folder };
        wait_for("the pooler", || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, this.port)).ok().map(|_| ())
        });
        this
    }
}

/// What happens to a COMMIT that passes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It never arrives.
    Before,
    /// It arrives, and its answer is lost.
    After,
}

/// An address before a server: it can be moved to another server, and it can cut a connection within a COMMIT.
#[derive(Debug)]
pub struct Address {
    pub port: u16,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    target: AtomicU16,
    /// Every so many commits one is cut, in turn before and after it; 0: none.
    every: AtomicUsize,
    commits: AtomicUsize,
    cuts: AtomicUsize,
    is_over: AtomicBool,
}

impl Address {
    pub fn of(target: u16) -> Self {
        let port = free_port();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a port");
        let inner = Arc::new(Inner {
            target: AtomicU16::new(target),
            every: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            cuts: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let shared = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.relay(stream));
            }
        });
        Self { port, inner }
    }

    pub fn move_to(&self, target: u16) {
        self.inner.target.store(target, Ordering::SeqCst);
    }

    pub fn cut_every(&self, commits: usize) {
        self.inner.every.store(commits, Ordering::SeqCst);
    }

    pub fn cuts(&self) -> usize {
        self.inner.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.inner.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
    }
}

impl Inner {
    /// Copies both directions until one end closes or a commit is cut.
    fn relay(&self, client: TcpStream) {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, self.target.load(Ordering::SeqCst)));
        let Ok(server) = TcpStream::connect_timeout(&to, Duration::from_secs(2)) else { return };
        let (Ok(mut from_server), Ok(mut to_client)) = (server.try_clone(), client.try_clone())
        else {
            return;
        };
        let is_muted = Arc::new(AtomicBool::new(false));
        let muted = Arc::clone(&is_muted);
        let back = thread::spawn(move || {
            let mut buffer = [0_u8; 8192];
            while let Ok(n) = from_server.read(&mut buffer) {
                // A muted answer has arrived here, so the server has done what was asked.
                let over = n == 0 || muted.load(Ordering::SeqCst);
                if over || to_client.write_all(&buffer[..n]).is_err() {
                    break;
                }
            }
            let _ = to_client.shutdown(Shutdown::Both);
        });
        let (mut from_client, mut to_server) = (client, server);
        let mut buffer = [0_u8; 8192];
        while let Ok(n) = from_client.read(&mut buffer) {
            if n == 0 {
                break;
            }
            match self.cut(&buffer[..n]) {
                Some(Cut::Before) => break,
                Some(Cut::After) => is_muted.store(true, Ordering::SeqCst),
                None => {}
            }
            if to_server.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
        if !is_muted.load(Ordering::SeqCst) {
            let _ = to_server.shutdown(Shutdown::Both);
        }
        let _ = from_client.shutdown(Shutdown::Both);
        let _ = back.join();
    }

    fn cut(&self, bytes: &[u8]) -> Option<Cut> {
        let every = self.every.load(Ordering::SeqCst);
        if every == 0 || !bytes.windows(7).any(|word| word == b"COMMIT\0") {
            return None;
        }
        let n = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if !n.is_multiple_of(every) {
            return None;
        }
        let cuts = self.cuts.fetch_add(1, Ordering::SeqCst);
        Some(if cuts.is_multiple_of(2) { Cut::After } else { Cut::Before })
    }
}
