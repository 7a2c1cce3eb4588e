//! Reads an external key map: from a URL of this cluster as an object, from any other URL by HTTP
//! within the rules for users' URLs.

use forebay_client::Client;
use forebay_clouds::egress::{Guarded, WebRules, failed};
use forebay_core::dsort::{KeyMapAt, KeyMapSource};
use forebay_core::{Bucket, Error, ErrorCode, Result, shown_url};
use forebay_v1::query::{Query, split_path};
use futures::StreamExt;
use reqwest::{Method, Url};

use crate::object::ObjectService;

/// Largest map.
const MAX_MAP_BYTES: usize = 256 << 20;

/// The text of a key map.
pub(super) async fn load(
    objects: &ObjectService,
    client: &Client,
    web: &WebRules,
    source: &KeyMapSource,
) -> Result<String> {
    let url = match &source.at {
        KeyMapAt::Text(text) => return Ok(text.clone()),
        KeyMapAt::Url(url) => url,
    };
    let bytes = match of_this_cluster(objects, url)? {
        Some((bucket, name)) => {
            let size = client.head(&bucket, &name).await?.size;
            if size > MAX_MAP_BYTES as u64 {
                return Err(too_large(url));
            }
            client.get_bytes(&bucket, &name, None).await?.to_vec()
        }
        None => fetch(objects, web, url).await?,
    };
    String::from_utf8(bytes).map_err(|_| {
        Error::invalid(format!("the external key map {} is not text in UTF-8", shown_url(url)))
    })
}

fn too_large(url: &str) -> Error {
    Error::new(
        ErrorCode::Unprocessable,
        format!("the external key map {} is larger than {MAX_MAP_BYTES} bytes", shown_url(url)),
    )
}

/// The object that a URL of one of our nodes names.
fn of_this_cluster(objects: &ObjectService, url: &str) -> Result<Option<(Bucket, String)>> {
    let parsed: Url = url
        .parse()
        .map_err(|e| Error::invalid(format!("ekm_file: \"{}\" is no URL: {e}", shown_url(url))))?;
    // One port of a node may serve HTTP and HTTPS, and the map has one of the two URLs.
    let address = |url: &Url| (url.host_str().map(str::to_owned), url.port_or_known_default());
    let asked = address(&parsed);
    let is_node = |node: &str| node.parse::<Url>().is_ok_and(|node| address(&node) == asked);
    let state = objects.state();
    let ours = state.gateways().chain(state.targets()).any(|node| is_node(&node.url));
    if !ours || !parsed.path().starts_with("/v1/objects/") {
        return Ok(None);
    }
    let (bucket, name) = split_path(parsed.path(), "objects")?;
    let bucket = Query::parse(parsed.query()).bucket(&bucket)?;
    Ok(Some((bucket, name)))
}

async fn fetch(objects: &ObjectService, web: &WebRules, url: &str) -> Result<Vec<u8>> {
    let client = Guarded::new(web.rule(web.reach(&objects.state())), true)?;
    let answer = client.request(Method::GET, client.url(url)?).send().await;
    let answer = answer.map_err(|e| failed(&shown_url(url), &e))?;
    if !answer.status().is_success() {
        let text = format!("the external key map {} answered {}", shown_url(url), answer.status());
        return Err(Error::new(ErrorCode::Unprocessable, text));
    }
    let (mut bytes, mut body) = (Vec::new(), answer.bytes_stream());
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece.map_err(|e| failed(&shown_url(url), &e))?);
        if bytes.len() > MAX_MAP_BYTES {
            return Err(too_large(url));
        }
    }
    Ok(bytes)
}
