//! Members of shards: `GET /v1/objects/SHARD` with archive parameters, and a shard's index for
//! Forebay's own clients.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use forebay_archive::{Member, SHARD_STATS, ShardIndexReply};
use forebay_core::bucket::BucketInfo;
use forebay_core::request::{Caller, Principal, RequestContext};
use forebay_core::shard::{ArchiveFormat, MemberMatcher};
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::off_worker;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::native::SHARD;
use forebay_v1::archive::{ArchiveQuery, Wanted};
use forebay_v1::headers as v1;
use forebay_v1::query::{Query, split_path};
use forebay_v1::uploads::MemberQuery;
use futures::StreamExt;
use tokio::sync::mpsc;

use super::object_reply::not_satisfiable;
use super::object_request::{ObjectRequest, body_of};
use super::owner::OwnerCheck;
use super::synced::{Current, Synced};
use crate::batch::outgoing;
use crate::batch::output::{Output, Sink, content_type};
use crate::object::{ObjectService, Turns, read_first_chunk};
use crate::shard::{NewMember, Shards};

/// Members up to this size are sent in one chunk.
const ONE_PIECE: u64 = 1 << 20;

/// The services for members of shards; cheap to clone.
#[derive(Clone)]
pub(crate) struct ShardsApi {
    pub(crate) objects: ObjectService,
    pub(crate) shards: Shards,
    pub(crate) owner: OwnerCheck,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn routes() -> RouteSet<Synced<ShardsApi>> {
    RouteSet::new().on(&SHARD, Current(index))
}

/// `GET /api/v1/shard/BUCKET/NAME`: the position of each member; with `stats=true` also time and
/// mode.
async fn index(State(api): State<ShardsApi>, request: Request) -> Result<Response, Failure> {
    Ok(answer_index(&api, request).await?)
}

async fn answer_index(api: &ShardsApi, request: Request) -> Result<Response> {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path();
    let (bucket, name) = split_path(path.strip_prefix("/api").unwrap_or(path), "shard")?;
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let info = api.owner.bucket(&bucket)?;
    let about = parts.extensions.get::<RequestContext>();
    let anonymous = Principal::new(Caller::Anonymous);
    let sender = about.map_or(&anonymous, |about| &about.principal);
    if let Some(elsewhere) = api.owner.redirect(&info, &name, sender, &parts.method, &parts.uri)? {
        return Ok(elsewhere);
    }
    let (meta, index) = api.shards.described(&info, name.as_str(), None).await?;
    // Approximate memory of the response.
    let memory = usize::try_from(index.memory()).unwrap_or(usize::MAX);
    let members = index.members.iter().map(|m| (m.name.clone(), m.offset, m.size)).collect();
    let stats = match query.flag(SHARD_STATS) {
        true => index.members.iter().map(|m| m.stat).collect(),
        // Most readers do not need them, and they would be a third of the response.
        false => Vec::new(),
    };
    let (version, size) = (meta.version, meta.size);
    let reply = ShardIndexReply { format: index.format, version, size, members, stats };
    Ok(off_worker(memory, || json(&reply)))
}

impl ShardsApi {
    /// One member, or all matching members.
    pub(super) async fn get(
        &self,
        request: &ObjectRequest,
        asked: ArchiveQuery,
    ) -> Result<Response> {
        let range = match request.headers.get(header::RANGE) {
            Some(value) => RangeSpec::parse(value.to_str().unwrap_or("bytes="))?,
            None => None,
        };
        match asked.wanted {
            Wanted::Member(path) => {
                let mut turns = Turns::default();
                loop {
                    let done = self.member(request, &path, asked.mime, range).await;
                    if !turns.again(&done) {
                        return done;
                    }
                }
            }
            Wanted::Matching(mode, text) if range.is_none() => {
                // A small expression may take long to compile.
                let matcher = off_worker(usize::MAX, || MemberMatcher::new(mode, &text))?;
                self.matching(request, &matcher, asked.mime).await
            }
            Wanted::Matching(..) => {
                Err(Error::invalid("a range of several members of a shard has no meaning"))
            }
        }
    }

    async fn member(
        &self,
        request: &ObjectRequest,
        path: &str,
        mime: Option<ArchiveFormat>,
        range: Option<RangeSpec>,
    ) -> Result<Response> {
        let data = self.shards.member(&request.info, request.name.as_str(), path, mime).await?;
        let size = data.size;
        let bytes = match range.map(|r| r.resolve(size)).transpose() {
            Ok(range) => range.unwrap_or(ByteRange::whole(size)),
            Err(e) => return Ok(not_satisfiable(e, size)),
        };
        let result = data.result();
        let body = if range.is_none() && size <= ONE_PIECE {
            Body::from(data.read_all().await?)
        } else {
            Body::from_stream(read_first_chunk(data.stream(bytes)).await?)
        };
        self.objects.served(&request.info, result, bytes.len());
        let mut response = Response::new(body);
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(bytes.len()));
        headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        if range.is_some() {
            let content_range = format!("bytes {}-{}/{size}", bytes.start, bytes.end - 1);
            v1::set(headers, "content-range", &content_range);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        Ok(response)
    }

    async fn matching(
        &self,
        request: &ObjectRequest,
        matcher: &MemberMatcher,
        mime: Option<ArchiveFormat>,
    ) -> Result<Response> {
        let (info, name) = (&request.info, request.name.as_str());
        let members = self.shards.matching(info, name, matcher, mime).await?;
        if members.is_empty() {
            let (text, mode) = (matcher.text(), matcher.mode().as_str());
            let shard = info.bucket.object_uri(name);
            return Err(Error::new(
                ErrorCode::MemberNotFound,
                format!("(archregx={text}, archmode={mode}) in {shard} does not exist"),
            ));
        }
        let chosen = Chosen {
            shards: self.shards.clone(),
            info: info.clone(),
            name: request.name.clone(),
            members,
            mime,
        };
        let (sender, receiver) = mpsc::channel(2);
        let stop = self.lifecycle.token();
        let (objects, info) = (self.objects.clone(), request.info.clone());
        self.lifecycle.spawn(async move {
            let mut sink = Sink::Channel(sender.clone(), None);
            let served = |result, bytes| objects.served(&info, result, bytes);
            let done = tokio::select! {
                () = sender.closed() => return,
                () = stop.cancelled() => Err(Error::unavailable("this target is stopping")),
                done = chosen.write(&mut sink, served) => done,
            };
            if let Err(e) = done {
                tracing::debug!(error = %e, "members of a shard ended early");
                // The stream then has no proper end, by which the client detects the failure.
                let _ = sender.send(Err(e)).await;
            }
        });
        let mut response = Response::new(Body::from_stream(outgoing(receiver)));
        let content_type = HeaderValue::from_static(content_type(ArchiveFormat::Tar));
        response.headers_mut().insert(header::CONTENT_TYPE, content_type);
        Ok(response)
    }

    /// `PUT` with `archpath`: one member of an archive.
    pub(super) async fn put_member(
        &self,
        request: &ObjectRequest,
        member: MemberQuery,
        body: Body,
    ) -> Result<Response> {
        request.check_new_name()?;
        let (body, len) = body_of(body);
        let (info, name) = (&request.info, request.name.as_str());
        if len.is_none_or(|len| len == 0) {
            let uri = info.bucket.object_uri(name);
            let text =
                format!("failed to archive {uri}: missing \"Content-Length\" in the request");
            return Err(Error::invalid(text));
        }
        let MemberQuery { path, mime, on } = member;
        self.shards.write_member(info, name, NewMember { path, body, len, on, mime }).await?;
        Ok(Response::new(Body::empty()))
    }
}

/// Members that are sent as a TAR, in the archive's order.
struct Chosen {
    shards: Shards,
    info: Arc<BucketInfo>,
    name: ObjectName,
    members: Vec<Member>,
    mime: Option<ArchiveFormat>,
}

impl Chosen {
    async fn write(self, sink: &mut Sink, served: impl Fn(&'static str, u64)) -> Result<()> {
        let mut output = Output::new(ArchiveFormat::Tar, sink)?;
        for member in &self.members {
            let data = self.shards.data(&self.info, self.name.as_str(), member, self.mime).await?;
            served(data.result(), data.size);
            output.begin(&member.name, data.size, Some(member.stat))?;
            let mut stream = data.stream(ByteRange::whole(member.size));
            while let Some(piece) = stream.next().await {
                output.data(piece?).await?;
            }
            output.end().await?;
        }
        output.finish().await
    }
}
