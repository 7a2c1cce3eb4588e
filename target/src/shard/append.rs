//! Writes a member to an existing shard. A plain TAR is copied up to its end marker, so that
//! metadata which only a TAR has (owners, links) stays. Other formats are packed again, and times
//! and modes of their members stay. A member of the same name is replaced: the next reader gets the
//! acknowledged write.

use bytes::Bytes;
use forebay_archive::{Member, ShardIndex};
use forebay_core::bucket::BucketInfo;
use forebay_core::shard::{ArchiveFormat, Stat};
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_v1::uploads::OnArchive;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::{Opened, Shards};
use crate::batch::outgoing;
use crate::batch::output::{Output, Sink};
use crate::object::{PutRequest, Spool, Stored, if_still};

const BLOCK: u64 = 512;
/// Entries behind the last file, other than files, that are examined one by one.
const MAX_TRAILING_ENTRIES: usize = 10_000;

/// A member to be written.
pub(crate) struct NewMember {
    /// As the client named it.
    pub(crate) path: String,
    pub(crate) body: BoxStream<'static, Result<Bytes>>,
    pub(crate) len: Option<u64>,
    pub(crate) on: OnArchive,
    /// Overrides the format that the shard's name implies.
    pub(crate) mime: Option<ArchiveFormat>,
}

/// The content before the new member.
enum Before {
    Nothing,
    /// The first bytes of a TAR, as they are.
    Raw(Stored, u64),
    /// These members, packed again.
    Members(Vec<Member>),
}

/// A shard that is being rewritten.
struct Rewrite {
    shards: Shards,
    info: BucketInfo,
    name: String,
    format: ArchiveFormat,
    before: Before,
    member: String,
    spool: Spool,
}

impl Shards {
    /// Writes a member to a shard, or creates a shard with one member.
    pub(crate) async fn write_member(
        &self,
        info: &BucketInfo,
        name: &str,
        new: NewMember,
    ) -> Result<()> {
        let objects = self.0.objects.clone();
        let uri = info.bucket.object_uri(name);
        let member = member_name(name, &new.path, self.0.limits.name_bytes)?;
        if new.on == OnArchive::Append {
            // Before the body is received for nothing.
            objects.reads().head(info, name).await?;
        }
        let known = new.mime.or_else(|| ArchiveFormat::from_name(name));
        let spool = objects.spool(info, name, new.body, new.len).await?;
        if spool.is_empty() {
            return Err(Error::invalid(format!("failed to archive {uri}: the member is empty")));
        }
        // Writers of members of one shard are serialized, so that no member is lost.
        let _turn = objects.appends().lock_shard(info, name).await;
        let opened = match new.on {
            OnArchive::Replace => None,
            _ => match self.open(info, name, new.mime).await {
                Ok(opened) => Some(opened),
                Err(e) if missing(&e) && new.on == OnArchive::AppendOrCreate => None,
                Err(e) => return Err(e),
            },
        };
        let (meta, format, before) = match opened {
            Some(opened) => {
                let (meta, format) = (opened.stored.meta(), opened.index.format);
                (Some(meta), format, keep(opened, &member).await?)
            }
            None => {
                let format = known.ok_or_else(|| {
                    Error::invalid(format!("{uri}: the name tells no archive format"))
                        .hint("name it .tar, .tgz, .tar.gz, .tar.lz4, .tar.zst or .zip")
                })?;
                (None, format, Before::Nothing)
            }
        };
        let rewrite = Rewrite {
            shards: self.clone(),
            info: info.clone(),
            name: name.to_owned(),
            format,
            before,
            member,
            spool,
        };
        let put = PutRequest {
            only_if: meta.map(|meta| if_still(Some(meta), info)),
            ..PutRequest::new(rewrite.start())
        };
        objects.writes().put(info, name, put).await.map(drop)
    }
}

impl Rewrite {
    /// The new bytes of the shard, generated while they are read.
    fn start(self) -> BoxStream<'static, Result<Bytes>> {
        let (sender, receiver) = mpsc::channel(4);
        let lifecycle = self.shards.0.lifecycle.clone();
        let stop = lifecycle.token();
        lifecycle.spawn(async move {
            let done = tokio::select! {
                () = sender.closed() => return,
                () = stop.cancelled() => Err(Error::unavailable("this target is stopping")),
                done = self.write(sender.clone()) => done,
            };
            if let Err(e) = done {
                let _ = sender.send(Err(e)).await;
            }
        });
        outgoing(receiver).boxed()
    }

    async fn write(self, sender: mpsc::Sender<Result<Bytes>>) -> Result<()> {
        if let Before::Raw(stored, end) = &self.before {
            let mut raw = stored.clone().stream(ByteRange::whole(*end));
            while let Some(bytes) = raw.try_next().await? {
                let sent = sender.send(Ok(bytes)).await;
                sent.map_err(|_| Error::unavailable("nobody wants the shard any more"))?;
            }
        }
        let mut sink = Sink::Channel(sender, None);
        let mut output = Output::new(self.format, &mut sink)?;
        if let Before::Members(members) = &self.before {
            for member in members {
                let mime = Some(self.format);
                let data = self.shards.data(&self.info, &self.name, member, mime).await?;
                let (size, stat) = (data.size, Some(member.stat));
                copy(&mut output, &member.name, size, stat, data.stream(whole(size))).await?;
            }
        }
        copy(&mut output, &self.member, self.spool.len(), None, self.spool.stream()).await?;
        output.finish().await
    }
}

fn whole(size: u64) -> ByteRange {
    ByteRange::whole(size)
}

async fn copy(
    output: &mut Output<'_>,
    name: &str,
    size: u64,
    stat: Option<Stat>,
    mut data: BoxStream<'static, Result<Bytes>>,
) -> Result<()> {
    output.begin(name, size, stat)?;
    while let Some(piece) = data.next().await {
        output.data(piece?).await?;
    }
    output.end().await
}

/// The content of a shard that stays when `member` is written to it.
async fn keep(opened: Opened, member: &str) -> Result<Before> {
    let Opened { stored, index, .. } = opened;
    let is_new = index.get(member).is_none();
    if index.format == ArchiveFormat::Tar
        && is_new
        && let Some(end) = end_of_tar(&stored, &index).await?
    {
        return Ok(Before::Raw(stored, end));
    }
    let others = index.members.iter().filter(|m| m.name != member);
    Ok(Before::Members(others.cloned().collect()))
}

/// Offset of the end marker of a plain TAR. `None` if it cannot be determined.
async fn end_of_tar(stored: &Stored, index: &ShardIndex) -> Result<Option<u64>> {
    let size = stored.record().size;
    let ends = index.members.iter().map(|m| (m.offset + m.size).next_multiple_of(BLOCK));
    let mut at = ends.max().unwrap_or(0);
    for _ in 0..MAX_TRAILING_ENTRIES {
        if at + BLOCK > size {
            return Ok((at <= size).then_some(at));
        }
        let block = stored.read(ByteRange { start: at, end: at + BLOCK }).await?;
        if block.iter().all(|b| *b == 0) {
            return Ok(Some(at));
        }
        let Some(len) = octal(&block[124..136]) else { return Ok(None) };
        at = at.saturating_add(BLOCK).saturating_add(len.next_multiple_of(BLOCK));
    }
    Ok(None)
}

/// A number in the format of TAR headers.
fn octal(field: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches(|c| c == ' ' || c == '\0');
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

/// The member's name: without the shard's own, and without parts that no archive supports.
fn member_name(shard: &str, path: &str, most: usize) -> Result<String> {
    let within = path.strip_prefix(shard).and_then(|rest| rest.strip_prefix('/'));
    let name = within.unwrap_or(path).trim_start_matches('/');
    if name.is_empty() || name.ends_with('/') || name.contains('\0') || name.len() > most {
        return Err(Error::invalid(format!("\"{path}\" cannot be the name of a member")));
    }
    Ok(name.to_owned())
}

fn missing(e: &Error) -> bool {
    e.code == ErrorCode::ObjectNotFound
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_named_within_its_shard() {
        let name = |path| member_name("d/s.tar", path, 20);
        for path in ["a/b.txt", "/a/b.txt", "d/s.tar/a/b.txt"] {
            assert_eq!(name(path).unwrap(), "a/b.txt");
        }
        assert_eq!(name("d/s.tarx").unwrap(), "d/s.tarx");
        for wrong in ["", "/", "a/", "d/s.tar/", "a\0b", "a-name-of-more-than-20"] {
            assert_eq!(name(wrong).unwrap_err().code.status(), 400, "{wrong}");
        }
    }

    #[test]
    fn numbers_of_headers() {
        assert_eq!(octal(b"00000000144\0"), Some(100));
        assert_eq!(octal(b"     144 \0\0\0"), Some(100));
        assert_eq!(octal(&[0; 12]), Some(0));
        assert_eq!(octal(&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), None, "base 256");
    }
}
