//! The sources of `cp` and `mv`, and the names of their copies.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use forebay_core::{Bucket, Error, ErrorCode};

use super::filter::FilterArgs;
use super::run::Plan;
use super::step::{Action, End, Step};
use crate::failure::{Failure, exit};
use crate::get::file_path;
use crate::put::{Upload, blocking, find, is_folder, object_name};
use crate::session::Session;
use crate::uri::{self, Place};

/// The arguments of the command.
pub(super) struct Request<'a> {
    pub(super) action: Action,
    pub(super) from: &'a [String],
    pub(super) to: &'a str,
    pub(super) recursive: bool,
    pub(super) filter: &'a FilterArgs,
}

/// Finds the sources; nothing is copied yet.
pub(super) async fn select(session: &Session, request: &Request<'_>) -> Result<Plan, Failure> {
    let to = place(request.to, request.action)?;
    if request.from.len() > 1 {
        check_several(&to, request)?;
    }
    let mut plan = Plan::default();
    for text in request.from {
        let from = place(text, request.action)?;
        match (from, &to) {
            (Place::Remote(bucket, prefix), _) if request.recursive => {
                add_prefix(session, request, (&bucket, &prefix), &to, &mut plan).await?;
            }
            (Place::Remote(bucket, name), _) => {
                let added = add_object(session, request, (bucket, name), &to, &mut plan).await;
                note_missing(request, added, &mut plan)?;
            }
            (Place::Local(path), Place::Remote(bucket, name)) => {
                let added = add_local(request, path, (bucket, name), &mut plan).await;
                note_missing(request, added, &mut plan)?;
            }
            (Place::Local(_) | Place::Stream, _) => {
                let hint = "write one of them with a scheme: ais://bucket/object";
                return Err(Failure::usage("neither the source nor TO is in a bucket", hint));
            }
        }
    }
    if plan.steps.is_empty() && plan.problems.is_empty() {
        return Err(nothing(request));
    }
    check_names(&plan)?;
    Ok(plan)
}

fn place(text: &str, action: Action) -> Result<Place, Failure> {
    match Place::parse(text)? {
        Place::Stream => Err(Failure::usage(
            format!("cannot {} standard input or output", action.word()),
            "forebay put - URI, or forebay get URI -",
        )),
        place => Ok(place),
    }
}

/// With one source its error ends the command; of several it is one problem among others.
fn note_missing(
    request: &Request<'_>,
    added: Result<(), Failure>,
    plan: &mut Plan,
) -> Result<(), Failure> {
    match added {
        Err(Failure { code: exit::NOT_FOUND, error: Some(e), .. }) if request.from.len() > 1 => {
            plan.problems.push(e.to_string());
            Ok(())
        }
        added => added,
    }
}

fn check_several(to: &Place, request: &Request<'_>) -> Result<(), Failure> {
    let many = || format!("{} sources cannot all become \"{}\"", request.from.len(), request.to);
    match to {
        Place::Remote(_, name) if !name.is_empty() && !name.ends_with('/') => {
            Err(Failure::usage(many(), format!("put them under it: {}/", request.to)))
        }
        Place::Local(path) if !path.is_dir() && !request.recursive => {
            let word = request.action.word();
            Err(Failure::usage(many(), format!("make the folder first; {word} needs one")))
        }
        _ => Ok(()),
    }
}

fn nothing(request: &Request<'_>) -> Failure {
    let what = format!("nothing matches {}", request.from.join(", "));
    let hint = match request.filter.is_empty() {
        true => "a prefix is a text that names begin with; `forebay ls` shows the names",
        false => "--include and --exclude match the path below the source; * is any text",
    };
    Error::new(ErrorCode::ObjectNotFound, what).hint(hint).into()
}

/// A prefix under which names are put: empty, or with a slash at its end.
pub(super) fn as_folder(prefix: &str) -> String {
    match prefix {
        "" => String::new(),
        prefix if prefix.ends_with('/') => prefix.to_owned(),
        prefix => format!("{prefix}/"),
    }
}

async fn add_prefix(
    session: &Session,
    request: &Request<'_>,
    (bucket, prefix): (&Bucket, &str),
    to: &Place,
    plan: &mut Plan,
) -> Result<(), Failure> {
    // The folder part of the prefix is not repeated at the destination.
    let skip = prefix.rfind('/').map_or(0, |slash| slash + 1);
    let mut found = 0;
    for (name, size) in session.client.list_all(bucket, prefix).await? {
        let below = name.get(skip..).unwrap_or_default();
        if !request.filter.takes(below) {
            continue;
        }
        found += 1;
        let end = match to {
            Place::Remote(to, folder) => Some(End::Object(to.clone(), as_folder(folder) + below)),
            Place::Local(folder) => uri::path_below(below).map(|path| End::File(folder.join(path))),
            Place::Stream => None,
        };
        let from = End::Object(bucket.clone(), name);
        match end {
            Some(to) => plan.steps.push(step(request.action, from, to, size)),
            None => plan.problems.push(format!("{from}: no file can have this name")),
        }
    }
    // One of several prefixes that matches nothing is likely to be misspelt.
    if found == 0 && request.from.len() > 1 {
        plan.problems.push(format!("nothing matches {bucket}/{prefix}"));
    }
    Ok(())
}

async fn add_object(
    session: &Session,
    request: &Request<'_>,
    (bucket, name): (Bucket, String),
    to: &Place,
    plan: &mut Plan,
) -> Result<(), Failure> {
    if name.is_empty() || name.ends_with('/') {
        let text = format!("{} names no object", bucket.object_uri(&name));
        return Err(Failure::usage(text, "add -r to take all objects with this prefix"));
    }
    let size = session.client.head(&bucket, &name).await?.size;
    let to = match to {
        Place::Remote(to, new) => End::Object(to.clone(), object_name(new, Path::new(&name))?),
        Place::Local(path) => End::File(file_path(path, &name)?),
        Place::Stream => return Err(Error::internal("a copy to a stream").into()),
    };
    plan.steps.push(step(request.action, End::Object(bucket, name), to, size));
    Ok(())
}

async fn add_local(
    request: &Request<'_>,
    path: PathBuf,
    (bucket, name): (&Bucket, &str),
    plan: &mut Plan,
) -> Result<(), Failure> {
    let meta = tokio::fs::metadata(&path).await.map_err(|e| Failure::local(path.display(), &e))?;
    let mut add = |Upload { path, name, size }: Upload| {
        let to = End::Object(bucket.clone(), name);
        plan.steps.push(step(request.action, End::File(path), to, size));
    };
    if !meta.is_dir() {
        let name = object_name(name, &path)?;
        add(Upload { path, name, size: meta.len() });
        return Ok(());
    }
    if !request.recursive {
        return Err(is_folder(&path));
    }
    let prefix = match request.from.len() {
        1 => as_folder(name),
        _ => as_folder(&object_name(name, &path)?),
    };
    let skip = prefix.len();
    let (files, problems) = blocking(move || find(&path, &prefix)).await?;
    files.into_iter().filter(|file| request.filter.takes(&file.name[skip..])).for_each(&mut add);
    plan.problems.extend(problems);
    Ok(())
}

fn step(action: Action, from: End, to: End, size: u64) -> Step {
    Step { action, from, to: Some(to), size, reason: None }
}

/// Refuses copies of one name, and copies that would replace a source before it is read.
fn check_names(plan: &Plan) -> Result<(), Failure> {
    let sources: HashSet<String> = plan.steps.iter().map(|step| step.from.to_string()).collect();
    let mut names = HashSet::new();
    for step in &plan.steps {
        let Some(to) = step.to.as_ref().map(ToString::to_string) else { continue };
        if sources.contains(&to) {
            let text = format!("{} would replace {to}, which is a source too", step.from);
            return Err(Failure::usage(text, "use another prefix; nothing was changed"));
        }
        if names.contains(&to) {
            let text = format!("two sources would become {to}");
            return Err(Failure::usage(text, "copy them under different prefixes"));
        }
        names.insert(to);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn object(name: &str) -> End {
        End::Object(uri::bucket("ais://b").unwrap(), name.to_owned())
    }

    fn plan(pairs: &[(&str, &str)]) -> Plan {
        let steps = pairs.iter().map(|(from, to)| step(Action::Move, object(from), object(to), 1));
        Plan { steps: steps.collect(), ..Plan::default() }
    }

    #[test]
    fn a_copy_never_replaces_a_source_or_another_copy() {
        assert!(check_names(&plan(&[("a", "x/a"), ("b", "x/b")])).is_ok());
        let text = |pairs: &[(&str, &str)]| {
            let failure = check_names(&plan(pairs)).unwrap_err();
            assert_eq!(failure.code, exit::USAGE);
            failure.error.unwrap().message
        };
        assert!(text(&[("a", "a")]).contains("is a source too"));
        assert!(text(&[("a", "a/a"), ("a/a", "a/a/a")]).contains("is a source too"));
        assert!(text(&[("a", "x"), ("b", "x")]).contains("two sources would become ais://b/x"));
    }

    #[test]
    fn a_prefix_is_a_folder_for_the_names_under_it() {
        assert_eq!(
            (as_folder(""), as_folder("a"), as_folder("a/")),
            (String::new(), "a/".to_owned(), "a/".to_owned())
        );
    }
}
