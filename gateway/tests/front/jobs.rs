//! Jobs over all targets, for v1 clients and Forebay's own.

use forebay_core::job::JobState;
use serde_json::{Value, json};

use crate::wire::{act, get, send};
use crate::world::World;

async fn query(url: &str, what: &str, body: Value) -> crate::wire::Answer {
    let json = [("content-type", "application/json")];
    send(url, "GET", &format!("/v1/cluster?what={what}"), &json, body.to_string()).await
}

async fn start(w: &World) -> String {
    let value = json!({"objnames": ["a", "b"]});
    let answer =
        act(w.url(), "DELETE", "/v1/buckets/b", "delete-listrange", value).await.expect(200);
    answer.text()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_is_one_thing_over_all_targets_and_every_gateway() {
    let w = World::new(2, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let id = start(&w).await;
    assert!(id.len() >= 9 && !id.contains(char::is_whitespace));
    for gateway in &w.gateways {
        let status = query(&gateway.url, "status", json!({"id": id})).await.expect(200).json();
        assert_eq!((&status["kind"], &status["end_time"]), (&json!("delete-listrange"), &json!(0)));
        let running = query(&gateway.url, "running_all", json!({})).await.expect(200).json();
        assert_eq!(running, json!([format!("delete-listrange[{id}]")]));
    }
    let end = |i: usize, state, errors| {
        let mut holds = w.targets[i].holds.lock().unwrap();
        let job = holds.jobs.get_mut(&id).unwrap();
        (job.state, job.ended_ns, job.errors, job.objects) = (state, 50, errors, 1);
        if errors > 0 {
            job.messages.push("t[x]: ais://b/a does not exist".into());
        }
    };
    end(0, JobState::Done, 0);
    let status = query(w.url(), "status", json!({"id": id})).await.json();
    assert_eq!(status["end_time"], 0, "half done is not done");
    end(1, JobState::Failed, 1);
    let status = query(w.url(), "status", json!({"ID": id, "Kind": ""})).await.json();
    assert_eq!((&status["end_time"], &status["aborted"]), (&json!(50), &json!(false)));
    assert!(status["err"].as_str().unwrap().contains("does not exist"));
    let stats = query(w.url(), "qryxstats", json!({"id": id})).await.expect(200).json();
    assert_eq!(stats["target-00"][0]["stats"]["loc-objs"], "1");
    let none = query(w.url(), "qryxstats", json!({"kind": "lru"})).await.expect(200).json();
    assert_eq!(none, json!({"target-00": [], "target-01": []}));
    query(w.url(), "status", json!({"id": "Unknown123"})).await.expect(404);
    query(w.url(), "qryxstats", json!({"id": "Unknown123"})).await.expect(404);
    let ours = get(w.url(), &format!("/api/v1/jobs/{id}")).await.expect(200).json();
    assert_eq!((&ours["state"], &ours["objects"]), (&json!("failed"), &json!(2)));
    assert_eq!(get(w.url(), "/api/v1/jobs").await.expect(200).json().as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_job_is_aborted_and_stopping_nothing_is_fine() {
    let w = World::new(1, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let id = start(&w).await;
    let stop = |value| act(w.url(), "PUT", "/v1/cluster", "stop", value);
    stop(json!({})).await.expect(200);
    let status = query(w.url(), "status", json!({"id": id})).await.json();
    assert_eq!(status["aborted"], false, "a stop that names nothing stops nothing");
    stop(json!({"ID": id, "Kind": "delete-objects"})).await.expect(200);
    let status = query(w.url(), "status", json!({"id": id})).await.json();
    assert_eq!((&status["aborted"], &status["end_time"]), (&json!(true), &json!(9)));
    stop(json!({"ID": "Unknown123"})).await.expect(200);
    send(w.url(), "DELETE", "/api/v1/jobs/Unknown123", &[], "").await.expect(404);
    let second = start(&w).await;
    send(w.url(), "DELETE", &format!("/api/v1/jobs/{second}"), &[], "").await.expect(200);
    let ours = get(w.url(), &format!("/api/v1/jobs/{second}")).await.json();
    assert_eq!(ours["state"], "stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_cannot_run_everywhere_runs_nowhere() {
    let w = World::new(1, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    w.targets[1].holds.lock().unwrap().refuse_jobs = true;
    let value = json!({"template": ""});
    act(w.url(), "DELETE", "/v1/buckets/b", "delete-listrange", value.clone()).await.expect(500);
    let running = query(w.url(), "running_all", json!({})).await.json();
    assert_eq!(running, json!([]));
    // A native bucket has nothing to fetch or to evict.
    act(w.url(), "POST", "/v1/buckets/b", "prefetch-listrange", value.clone()).await.expect(400);
    act(w.url(), "DELETE", "/v1/buckets/b", "evict-listrange", value.clone()).await.expect(400);
    w.targets[1].stop().await;
    act(w.url(), "DELETE", "/v1/buckets/b", "delete-listrange", value).await.expect(503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_a_target_forgot_is_a_failure() {
    let w = World::new(1, 2).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let id = start(&w).await;
    w.targets[0].holds.lock().unwrap().jobs.clear();
    {
        let mut holds = w.targets[1].holds.lock().unwrap();
        let job = holds.jobs.get_mut(&id).unwrap();
        (job.state, job.ended_ns) = (JobState::Done, 50);
    }
    let ours = get(w.url(), &format!("/api/v1/jobs/{id}")).await.expect(200).json();
    assert_eq!(ours["state"], "failed");
    assert!(ours["messages"][0].as_str().unwrap().contains("target-00"));
}
