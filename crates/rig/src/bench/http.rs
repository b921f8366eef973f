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

/// Starts `fermata serve` on a new file in `folder`, runs the load, and stops it.
pub(super) async fn measure(folder: &Path, workflows: usize, concurrency: usize) -> anyhow::Result<Http> {
    let begin = Instant::now();
    let (mut child, url) = start(folder).await?;
    let client = reqwest::Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(concurrency)
        .build()?;
    client
        .get(format!("{url}/health/ready"))
        .send()
        .await?
        .error_for_status()?;
    let ready_ms = rounded(begin.elapsed().as_secs_f64() * 1000.0);
    let pid = child.id().context("the server is gone")?.to_string();
    let idle_rss_mb = rss_mb_of(&pid);
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
    load(&client, &url, (workflows / 10).max(1), concurrency).await?;
    let mut all = load(&client, &url, workflows, concurrency).await?;
    let rss_mb = rss_mb_of(&pid);
    child.kill().await?;
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

async fn start(folder: &Path) -> anyhow::Result<(Child, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["serve", "--listen", "127.0.0.1:0", "--database"])
        .arg(format!("sqlite:{}", folder.join("http.db").display()))
        .stderr(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stderr.take().context("no stderr")?).lines();
    let found = async {
        while let Some(line) = lines.next_line().await? {
            if let Some(at) = line.find("http://") {
                let url = line[at..].split([',', ' ']).next().unwrap_or_default();
                return Ok(url.to_owned());
            }
        }
        anyhow::bail!("the server ended before it was ready")
    };
    let url = tokio::time::timeout(Duration::from_secs(10), found)
        .await
        .context("the server is not ready")??;
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((child, url))
}

async fn load(client: &reqwest::Client, url: &str, workflows: usize, concurrency: usize) -> anyhow::Result<Many> {
    let client = client.clone();
    let address: Arc<str> = format!("{url}/api/v1/workflows/{THREE}/execute?wait=60s").into();
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
