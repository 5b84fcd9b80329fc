//! The folder outside the database: signed heads, public keys, tiles (C2SP tlog-tiles).
//!
//! ```text
//! checkpoint                 the newest signed head
//! history.ndjson             every head that this process wrote: {"size","sealed_at","note"}
//! keys                       public keys, one a line, in the order in which they came into force
//! tile/<L>/<N>[.p/<W>]       hashes of the tree
//! ```
//!
//! Whoever can change the database cannot by that change what stands here; put the folder where only this
//! program writes. There are no entry bundles: the facts stay in the database, where their retention is.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::note::{Checkpoint, NOTE_BYTES_MAX, Note};
use super::tree::{Hash, TILE_WIDTH, TileId};

/// One head in the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub size: u64,
    pub sealed_at: String,
    pub note: String,
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Outside(PathBuf);

impl Outside {
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Makes the folder where it is missing, for its owner alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn make(&self) -> io::Result<()> {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::DirBuilderExt as _;
            builder.mode(0o700);
        }
        builder.create(self.0.join("tile"))
    }

    /// The newest head; none where there is none yet.
    ///
    /// # Errors
    /// When the file cannot be read or is too large.
    pub fn checkpoint(&self) -> io::Result<Option<String>> {
        match std::fs::read_to_string(self.0.join("checkpoint")) {
            Ok(text) if text.len() > NOTE_BYTES_MAX => Err(io::ErrorKind::FileTooLarge.into()),
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The size of the newest head; 0 where there is none or it is none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn size(&self) -> io::Result<u64> {
        let note = self.checkpoint()?.as_deref().and_then(Note::parse);
        Ok(note.and_then(|note| Checkpoint::parse(&note.text)).map_or(0, |head| head.size))
    }

    /// Public keys, as they were written.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn keys(&self) -> io::Result<Vec<String>> {
        match std::fs::read_to_string(self.0.join("keys")) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Writes the public keys, where they are others than before.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn put_keys(&self, keys: &[String]) -> io::Result<()> {
        if self.keys()? == keys {
            return Ok(());
        }
        let text: String = keys.iter().map(|key| format!("{key}\n")).collect();
        put(&self.0.join("keys"), text.as_bytes())
    }

    /// Writes a tile; a full one takes the place of its partial ones.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_tile(&self, id: TileId, hashes: &[Hash]) -> io::Result<()> {
        let width = hashes.len() as u64;
        let whole = self.0.join(tile_path(id, None));
        let bytes = hashes.concat();
        if width == TILE_WIDTH {
            put(&whole, &bytes)?;
            let mut partial = whole.into_os_string();
            partial.push(".p");
            match std::fs::remove_dir_all(partial) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        } else {
            put(&self.0.join(tile_path(id, Some(width))), &bytes)
        }
    }

    /// The hashes of a tile for a tree of this size; none where it is missing or has another length.
    #[must_use]
    pub fn tile(&self, id: TileId, width: u64) -> Option<Vec<Hash>> {
        let partial = (width < TILE_WIDTH).then_some(width);
        let bytes = std::fs::read(self.0.join(tile_path(id, partial)))
            .or_else(|_| std::fs::read(self.0.join(tile_path(id, None))))
            .ok()?;
        let hashes: Vec<Hash> =
            bytes.chunks_exact(32).filter_map(|hash| hash.try_into().ok()).collect();
        (bytes.len() % 32 == 0 && hashes.len() as u64 >= width).then_some(hashes)
    }

    /// Writes a head: into the history first, then as the newest one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn put_checkpoint(&self, kept: &Kept) -> io::Result<()> {
        let mut line = serde_json::to_string(kept).map_err(io::Error::other)?;
        line.push('\n');
        let mut options = std::fs::OpenOptions::new();
        options.create(true).append(true);
        let mut history = options.open(self.0.join("history.ndjson"))?;
        history.write_all(line.as_bytes())?;
        history.sync_data()?;
        put(&self.0.join("checkpoint"), kept.note.as_bytes())
    }

    /// The history, line by line; a line that is no head is an error of its own.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn history(&self) -> io::Result<Option<impl Iterator<Item = io::Result<Kept>>>> {
        use std::io::BufRead as _;
        let file = match std::fs::File::open(self.0.join("history.ndjson")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(
            io::BufReader::new(file)
                .lines()
                .map(|line| serde_json::from_str(&line?).map_err(io::Error::other)),
        ))
    }
}

/// Where a tile lies, as C2SP tlog-tiles says.
fn tile_path((level, index): TileId, partial: Option<u64>) -> PathBuf {
    let mut parts = vec![format!("{:03}", index % 1000)];
    let mut rest = index / 1000;
    while rest > 0 {
        parts.push(format!("x{:03}", rest % 1000));
        rest /= 1000;
    }
    parts.reverse();
    let path = format!("tile/{level}/{}", parts.join("/"));
    match partial {
        None => path.into(),
        Some(width) => format!("{path}.p/{width}").into(),
    }
}

/// Written whole beside the place, then moved into it: nobody reads half a file.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut file = std::fs::File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_data()?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_lie_where_the_specification_says() {
        let text = |id, partial| tile_path(id, partial).display().to_string();
        assert_eq!(text((0, 5), None), "tile/0/005");
        assert_eq!(text((1, 1_234_067), None), "tile/1/x001/x234/067");
        assert_eq!(text((2, 0), Some(17)), "tile/2/000.p/17");
    }
}
