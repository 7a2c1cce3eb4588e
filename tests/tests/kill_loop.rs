//! A target that is killed under load, again and again, on the same folder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay_tests::cluster::{Cluster, folder_backend, native};
use forebay_tests::data::{assert_same, content, fill_folder, names};
use forebay_tests::history::{self, History, Random};
use forebay_tests::{Options, cluster};

const WRITERS: u64 = 4;
const SIZES: [usize; 2] = [3000, 300_000];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_killed_again_and_again_keeps_what_it_acknowledged() {
    let roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let folder_roots = roots.iter().map(|r| r.path().to_owned()).collect();
    // So small that the cached objects do not fit beside the others.
    let size = Some("48MiB");
    let cluster = Cluster::start(Options { targets: 1, size, folder_roots, ..Options::default() });
    let own = native("own");
    let client = cluster.client();
    client.create_bucket(&own, None).await.unwrap();
    let names = names(100);
    let buckets = [native("small"), native("large")];
    for ((bucket, root), size) in buckets.iter().zip(&roots).zip(SIZES) {
        fill_folder(root.path(), &names, size);
        client.create_bucket(bucket, Some(folder_backend(root.path()))).await.unwrap();
    }
    let history = History::default();
    let rounds = history::rounds("FOREBAY_KILLS", 4);
    let mut acknowledged = 0;
    for round in 0..rounds {
        let stop = Arc::new(AtomicBool::new(false));
        let impatient = || cluster.client_with_deadline(Duration::from_secs(1));
        let writers = history.writers((0..WRITERS).map(|_| impatient()), &own, round);
        let readers: Vec<_> = buckets
            .iter()
            .zip(SIZES)
            .map(|(bucket, size)| {
                let (bucket, names, stop) = (bucket.clone(), names.clone(), stop.clone());
                tokio::spawn(history::read(impatient(), bucket, names, size, round, stop))
            })
            .collect();
        let load = 200 + Random::new(round).below(1000);
        tokio::time::sleep(Duration::from_millis(load)).await;
        cluster::signal(cluster.pid("target01"), "KILL");
        stop.store(true, Ordering::Relaxed);
        acknowledged += writers.stop().await.iter().sum::<u64>();
        for reader in readers {
            reader.await.unwrap();
        }
        cluster.kill9("target01");
        cluster.restart("target01");
        history.check(&client, &own, &format!("round {round}")).await;
        for (bucket, size) in buckets.iter().zip(SIZES) {
            for name in names.iter().step_by(5) {
                let found = client.get_bytes(bucket, name, None).await.unwrap();
                assert_same(name, &found, &content(name, size));
            }
        }
    }
    println!("{rounds} rounds, {acknowledged} acknowledged writes");
    assert!(acknowledged > rounds, "it was under load");
}
