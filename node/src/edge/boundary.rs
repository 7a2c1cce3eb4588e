//! The boundary of a node without users: refuses requests under foreign names, and those that web
//! pages of other sites cause.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, Method, Uri, header};
use forebay_core::boundary::{self, HostCheck, OwnNames};
use forebay_core::config::{NodeConfig, S3Config};
use forebay_core::request::{Caller, Protocol, RequestContext};
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, Result};
use forebay_s3::{Front, RequestHead, auth, cors};

use crate::clock::unix_s;
use crate::identity::{Identity, after_scheme};
use crate::s3;

/// Headers by which browsers show the origin of a request.
static FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
static FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
static FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Paths of checks by machines, which may use any name of the node.
const HEALTH_PATHS: [&str; 3] = ["/healthz", "/readyz", "/v1/health"];
/// Minimum seconds between warnings about refused hosts.
const WARN_INTERVAL_S: u64 = 60;

/// An extension of an S3 form upload that a page of another site sent: only a signature in its
/// fields permits it.
#[derive(Clone, Copy, Debug)]
pub struct CrossSiteForm;

/// The checks of one node.
pub(super) struct Boundary {
    own: OwnNames,
    /// `host:port` of the node's own URL, which most requests have.
    authority: Box<[u8]>,
    /// Whether S3 requests have no access control.
    is_s3_open: bool,
    prefixed: Front,
    root: Front,
    /// Unix second of the last warning.
    warned_s: AtomicU64,
}

impl Boundary {
    /// The boundary of a node that has no further names.
    pub(super) fn new(s3: &S3Config, identity: &Identity) -> Self {
        let config = NodeConfig { s3: s3.clone(), ..NodeConfig::default() };
        Self::of(&config, identity)
    }

    /// The boundary of a node with this configuration.
    pub(super) fn of(config: &NodeConfig, identity: &Identity) -> Self {
        let mut own = OwnNames::new(&config.listen.http);
        own.add_host(&identity.url);
        own.add_host(&config.listen.advertise);
        own.add_host(&identity.external);
        config.listen.external_hosts.iter().for_each(|host| own.add_pattern(host));
        config.cluster.gateways.iter().for_each(|url| own.add_host(url));
        config.s3.domains.iter().for_each(|domain| own.add_domain(domain));
        config.listen.hosts.iter().for_each(|host| own.add_pattern(host));
        machine_names().iter().for_each(|name| own.add_name(name));
        let authority = after_scheme(&identity.url);
        let domains: Vec<String> =
            config.s3.domains.iter().map(|domain| domain.to_ascii_lowercase()).collect();
        Self {
            own,
            authority: authority.as_bytes().into(),
            is_s3_open: config.s3.keys().is_empty(),
            prefixed: Front::new("/s3", domains.clone()),
            root: Front::new("", domains),
            warned_s: AtomicU64::new(0),
        }
    }

    /// Whether a request with this host may take the fast path. `false`: only [`Self::check`] can
    /// decide. Allocates nothing.
    pub(super) fn is_surely_own(&self, host: Option<&[u8]>) -> bool {
        host.is_some_and(|host| {
            host.eq_ignore_ascii_case(&self.authority) || self.own.check(host) == HostCheck::Own
        })
    }

    /// Refuses a request under a foreign name, or of a page of another site. Requests that carry a
    /// valid proof of a node, a grant or a redirect are accepted: pages have none.
    pub(super) fn check(
        &self,
        about: &RequestContext,
        request: &mut Request,
        state: &ClusterState,
    ) -> Result<()> {
        let path = request.uri().path();
        if about.caller() != Caller::Anonymous || is_health(about, path) {
            return Ok(());
        }
        self.check_host(request.uri(), request.headers(), state)?;
        self.check_page(about, request, state)
    }

    /// A request without a `Host` (HTTP/1.0) has no foreign name: no browser sends it.
    fn check_host(&self, uri: &Uri, headers: &HeaderMap, state: &ClusterState) -> Result<()> {
        let host = headers.get(header::HOST).map(|host| host.as_bytes());
        let target = uri.authority().map(|authority| authority.as_str().as_bytes());
        if let (Some(host), Some(target)) = (host, target)
            && !boundary::is_same_host(host, target)
        {
            return Err(Error::invalid("the request names two different hosts"));
        }
        for name in host.into_iter().chain(target) {
            if !self.is_own(name, state) {
                let e = boundary::foreign_host(name);
                self.warn(&e);
                return Err(e);
            }
        }
        Ok(())
    }

    fn is_own(&self, host: &[u8], state: &ClusterState) -> bool {
        let of_a_node = || {
            let mut urls = state.nodes.values().flat_map(urls);
            urls.any(|url| boundary::is_same_host(host, after_scheme(url).as_bytes()))
        };
        match self.own.check(host) {
            HostCheck::Own => true,
            HostCheck::OwnIfLocal(address) => is_local(address) || of_a_node(),
            HostCheck::Foreign => of_a_node(),
        }
    }

    fn check_page(
        &self,
        about: &RequestContext,
        request: &mut Request,
        state: &ClusterState,
    ) -> Result<()> {
        let headers = request.headers();
        let host = headers.get(header::HOST).map(|host| host.as_bytes());
        let origins: Vec<&[u8]> =
            headers.get_all(header::ORIGIN).iter().map(|origin| origin.as_bytes()).collect();
        let is_foreign = |origin: &[u8]| {
            let urls = state.nodes.values().flat_map(urls);
            !boundary::is_own_origin(origin, host, urls)
        };
        let foreign = origins.iter().copied().find(|origin| is_foreign(origin));
        let mut sites = headers.get_all(&FETCH_SITE).iter();
        let is_own_page = foreign.is_none() && origins.len() == 1;
        // A page of another node has another site, and an origin of this cluster.
        let is_cross_site =
            !is_own_page && sites.any(|site| boundary::is_cross_site(site.as_bytes()));
        if foreign.is_none() && !is_cross_site {
            return Ok(());
        }
        let refusal = boundary::foreign_page(foreign);
        let value = |name| headers.get(name).map(|value| value.as_bytes());
        let (method, path) = (request.method(), request.uri().path());
        let is_link = boundary::is_link_to_console(
            method.as_str(),
            path,
            value(&FETCH_MODE),
            value(&FETCH_DEST),
        );
        if is_link && about.protocol == Protocol::Operations {
            return Ok(());
        }
        match self.s3_permission(about.protocol, request, state) {
            Permission::Given => Ok(()),
            Permission::ByForm => {
                request.extensions_mut().insert(CrossSiteForm);
                Ok(())
            }
            Permission::None => {
                self.warn(&refusal);
                Err(refusal)
            }
        }
    }

    /// Whether S3 itself decides about a request of a page of another site: by a signature, or by
    /// the bucket's CORS rules. If the bucket has rules but none for this page, the page may send
    /// reads, and its browser does not show it the answers.
    fn s3_permission(
        &self,
        protocol: Protocol,
        request: &Request,
        state: &ClusterState,
    ) -> Permission {
        let front = match protocol {
            Protocol::S3Prefixed => &self.prefixed,
            Protocol::S3Root => &self.root,
            _ => return Permission::None,
        };
        let (method, headers) = (request.method(), request.headers());
        let head = RequestHead {
            method,
            path: request.uri().path(),
            query: request.uri().query().unwrap_or(""),
            headers,
        };
        if *method == Method::OPTIONS || (!self.is_s3_open && auth::is_signed(&head)) {
            return Permission::Given;
        }
        let bucket = forebay_s3::Request::parse(&head, front).map(|parsed| parsed.bucket);
        let info = bucket.ok().and_then(|bucket| s3::bucket(state, &bucket).ok());
        if let Some(rules) = info.map(|info| &info.s3.cors).filter(|rules| !rules.is_empty()) {
            let is_read = matches!(*method, Method::GET | Method::HEAD);
            if is_read || !cors::answer(rules, method.as_str(), headers).is_empty() {
                return Permission::Given;
            }
        }
        let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let form = b"multipart/form-data";
        let is_form = kind.get(..form.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(form));
        if *method == Method::POST && is_form && !self.is_s3_open {
            return Permission::ByForm;
        }
        Permission::None
    }

    fn warn(&self, refusal: &Error) {
        let (now, last) = (unix_s(), self.warned_s.load(Ordering::Relaxed));
        if now.saturating_sub(last) < WARN_INTERVAL_S {
            return;
        }
        let swapped =
            self.warned_s.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
        if swapped.is_ok() {
            tracing::warn!(error = %refusal, "requests are refused");
        }
    }
}

/// The URLs by which clients reach a node.
fn urls(node: &Node) -> impl Iterator<Item = &str> {
    [node.url.as_str(), node.external.as_str()].into_iter().filter(|url| !url.is_empty())
}

enum Permission {
    Given,
    /// By a signature in the fields of a form, which the handler checks.
    ByForm,
    None,
}

/// The refusal of an S3 form that a page of another site sent without a signature.
pub fn unsigned_form() -> Error {
    Error::new(ErrorCode::AccessDenied, "a web page of another site sent this form unsigned")
        .hint("sign the form's policy, or add a CORS rule for POST to the bucket")
}

/// Behind the host of a bucket, the same path is a key.
fn is_health(about: &RequestContext, path: &str) -> bool {
    !about.protocol.is_s3() && HEALTH_PATHS.contains(&path)
}

/// Whether this machine has the address: only then can a socket be bound to it.
fn is_local(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

/// The names of this machine: its host name, and the complete form that `/etc/hosts` has for it.
/// Search domains are not used: the network provides them, and they may be an attacker's.
fn machine_names() -> Vec<String> {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    machine_names_of(&read("/proc/sys/kernel/hostname"), &read("/etc/hosts"))
}

fn machine_names_of(hostname: &str, hosts: &str) -> Vec<String> {
    let hostname = hostname.trim();
    if hostname.is_empty() {
        return Vec::new();
    }
    let short = hostname.split('.').next().unwrap_or(hostname);
    let mut names = vec![hostname.to_owned(), short.to_owned()];
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or(line);
        let listed: Vec<&str> = line.split_whitespace().skip(1).collect();
        if listed.iter().any(|name| name.eq_ignore_ascii_case(hostname)) {
            let is_longer = |name: &&&str| name.split('.').next() == Some(short);
            names.extend(listed.iter().filter(is_longer).map(|name| (*name).to_owned()));
        }
    }
    names
}

#[cfg(test)]
#[path = "boundary_tests.rs"]
mod tests;
