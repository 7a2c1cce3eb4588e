//! The files of the web console at `/ui/`, which are part of the program. They have no data of the
//! cluster: the page requests it over the API, with the token of its user.

use std::sync::LazyLock;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_core::sign::body_hash;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::operations::CONSOLE;

use super::answered;

/// Where the browser may load from: this origin alone, and no code but that of the files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' blob:; connect-src 'self'; frame-ancestors 'none'; \
                      base-uri 'none'; form-action 'none'";
/// Headers of every file. A browser asks each time whether its copy is current, so that a page never
/// mixes files of two versions. Pages of this origin that were opened elsewhere have no handle on it.
const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

/// One file of the console.
struct ConsoleFile {
    name: &'static str,
    media_type: &'static str,
    bytes: &'static [u8],
}

/// The table of files, from their names and media types.
macro_rules! files {
    ($($name:literal: $media_type:ident;)*) => {
        static FILES: &[ConsoleFile] = &[$(ConsoleFile {
            name: $name,
            media_type: $media_type,
            bytes: include_bytes!(concat!("../../ui/", $name)),
        }),*];
    };
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JS: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

files! {
    "index.html": HTML;
    "style.css": CSS;
    "icon.svg": SVG;
    "app.js": JS;
    "api.js": JS;
    "buckets.js": JS;
    "chart.js": JS;
    "content.js": JS;
    "dom.js": JS;
    "feeds.js": JS;
    "format.js": JS;
    "jobs.js": JS;
    "live.js": JS;
    "login.js": JS;
    "nodes.js": JS;
    "objects.js": JS;
    "overview.js": JS;
    "shard.js": JS;
}

/// The entity tag of each file, in the order of the table.
static TAGS: LazyLock<Vec<String>> = LazyLock::new(|| {
    FILES.iter().map(|file| format!("\"{}\"", &body_hash(file.bytes)[..32])).collect()
});

pub(crate) fn router() -> GuardedRouter {
    routes().with_state(())
}

pub(crate) fn routes() -> RouteSet<()> {
    RouteSet::new().on(&CONSOLE, serve)
}

async fn serve(request: Request) -> Response {
    answered("console", answer(&request))
}

fn answer(request: &Request) -> Result<Response> {
    let path = request.uri().path();
    let Some(name) = path.strip_prefix("/ui/") else {
        return Ok((StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, "/ui/")]).into_response());
    };
    let name = if name.is_empty() { "index.html" } else { name };
    let found = FILES.iter().zip(TAGS.iter()).find(|(file, _)| file.name == name);
    let Some((file, tag)) = found else {
        let text = "the console has no such file";
        return Err(Error::new(ErrorCode::ObjectNotFound, text).hint("it is at /ui/"));
    };
    let tags = request.headers().get_all(header::IF_NONE_MATCH);
    let mut known = tags.iter().filter_map(|value| value.to_str().ok());
    let is_known = known.any(|tags| tags.split(',').any(|known| known.trim() == tag));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, file.media_type)], file.bytes).into_response()
    };
    response.headers_mut().extend(HEADERS);
    if let Ok(tag) = HeaderValue::try_from(tag.as_str()) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    Ok(response)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use axum::body::Body;

    use super::*;

    /// Most bytes of all files together.
    const MAX_CONSOLE_BYTES: usize = 300 << 10;

    fn get(path: &str, known: &str) -> Result<Response> {
        let request = Request::builder().uri(path).header(header::IF_NONE_MATCH, known);
        answer(&request.body(Body::empty()).unwrap())
    }

    #[test]
    fn the_program_has_every_file_of_the_folder_within_its_size() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("ui");
        let names = std::fs::read_dir(folder).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let served: BTreeSet<_> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(served, names.collect());
        let bytes: usize = FILES.iter().map(|file| file.bytes.len()).sum();
        assert!(bytes <= MAX_CONSOLE_BYTES, "{bytes} bytes");
    }

    #[test]
    fn every_file_has_the_policy_and_is_sent_once() {
        for (file, tag) in FILES.iter().zip(TAGS.iter()) {
            let path = format!("/ui/{}", file.name);
            let fresh = get(&path, "\"other\"").unwrap();
            assert_eq!(fresh.status(), 200, "{path}");
            assert_eq!(fresh.headers()[header::CONTENT_TYPE], file.media_type);
            assert_eq!(fresh.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
            assert_eq!(fresh.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            let again = get(&path, &format!("\"other\", {tag}")).unwrap();
            assert_eq!(again.status(), 304, "{path}");
            assert_eq!(again.headers()[header::ETAG], tag.as_str());
        }
    }

    #[test]
    fn the_console_is_at_the_path_with_a_slash() {
        let moved = get("/ui", "").unwrap();
        assert_eq!(
            (moved.status().as_u16(), &moved.headers()[header::LOCATION]),
            (308, &HeaderValue::from_static("/ui/"))
        );
        assert_eq!(get("/ui/", "").unwrap().headers()[header::CONTENT_TYPE], HTML);
        assert_eq!(get("/ui/../secret", "").unwrap_err().code, ErrorCode::ObjectNotFound);
    }
}
