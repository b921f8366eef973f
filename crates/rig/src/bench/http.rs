//! The workload over HTTP, against a separate server process.

use super::{
    load::{Many, THREE, repeat, three_steps},
    report::{Http, Latency, rounded, rss_mb_of},
};
use anyhow::{Context, ensure};
use std::{
    path::Path,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

/// Runs the load against a server on a new file in `folder`.
pub(super) async fn measure(folder: &Path, workflows: usize, concurrency: usize) -> anyhow::Result<Http> {
    let begin = Instant::now();
    let server = Server::start(&folder.join("http.db")).await?;
    let ready_ms = rounded(begin.elapsed().as_secs_f64() * 1000.0);
    let idle_rss_mb = rss_mb_of(&server.pid);
    let (client, url) = (&server.client, &server.url);
    let create = client
        .post(format!("{url}/api/v1/workflows"))
        .header("content-type", "application/json")
        .body(three_steps().to_string());
    create.send().await?.error_for_status()?;
    client
        .post(format!("{url}/api/v1/workflows/{THREE}/publish"))
        .send()
        .await?
        .error_for_status()?;
    load(&server, (workflows / 10).max(1), concurrency).await?;
    let mut all = load(&server, workflows, concurrency).await?;
    let rss_mb = rss_mb_of(&server.pid);
    server.stop().await?;
    Ok(Http {
        workflows,
        concurrency,
        workflows_per_second: rounded(all.per_second()),
        latency: Latency::of(&mut all.times),
        ready_ms,
        idle_rss_mb,
        rss_mb,
    })
}

/// `fermata serve` as a process of its own.
pub(super) struct Server {
    pub client: reqwest::Client,
    pub url: String,
    pid: String,
    process: Child,
}

impl Server {
    /// Starts it on a SQLite file and waits until it is ready.
    pub async fn start(file: &Path) -> anyhow::Result<Server> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", "127.0.0.1:0", "--database"])
            .arg(format!("sqlite:{}", file.display()))
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        let mut lines = BufReader::new(process.stderr.take().context("no stderr")?).lines();
        let found = async {
            while let Some(line) = lines.next_line().await? {
                if let Some(at) = line.find("http://") {
                    let url = line[at..].split([',', ' ']).next().unwrap_or_default();
                    return Ok(url.trim_end_matches('/').to_owned());
                }
            }
            anyhow::bail!("the server ended before it was ready")
        };
        let url = tokio::time::timeout(Duration::from_secs(10), found)
            .await
            .context("the server is not ready")??;
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        let client = reqwest::Client::builder()
            .no_proxy()
            .pool_max_idle_per_host(1024)
            .build()?;
        client
            .get(format!("{url}/health/ready"))
            .send()
            .await?
            .error_for_status()?;
        Ok(Server {
            client,
            url,
            pid: process.id().context("the server is gone")?.to_string(),
            process,
        })
    }

    /// Ends the process.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        Ok(self.process.kill().await?)
    }
}

/// Starts `workflows` workflows, `concurrency` at a time, and waits for the end of each.
pub(super) async fn load(server: &Server, workflows: usize, concurrency: usize) -> anyhow::Result<Many> {
    let client = server.client.clone();
    let address: Arc<str> = format!("{}/api/v1/workflows/{THREE}/execute?wait=60s", server.url).into();
    repeat(workflows, concurrency, move || {
        let (client, address) = (client.clone(), address.clone());
        async move {
            let answer = client.post(&*address).send().await?;
            ensure!(answer.status() == 200, "the server answered {}", answer.status());
            answer.bytes().await?;
            Ok(())
        }
    })
    .await
}
