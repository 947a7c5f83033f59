//! The header of a harmony message: role, channel, recipient, constraint.
//! It must refuse the first character that no known header has, however the text is cut.

use core::ops::Range;

use crate::event::{TagError, TagErrorKind};
use crate::harmony::{CHANNEL, CONSTRAIN, MESSAGE, START};
use crate::json::is_blank;
use crate::lexer::Lexeme;
use crate::markup::Markup;

/// How long a header may grow; names of tools are far shorter.
const HEADER_BYTES_MAX: usize = 1024;

/// Who a message without a recipient is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// The model itself: reasoning.
    Analysis,
    /// The reader, before a call.
    Commentary,
    /// The reader.
    Final,
}

impl Channel {
    const ALL: [(&'static str, Channel); 3] = [
        ("analysis", Channel::Analysis),
        ("commentary", Channel::Commentary),
        ("final", Channel::Final),
    ];
}

/// The part of a header that is being read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    /// After the prompt, which ends in the role, or after another message.
    #[default]
    AfterRole,
    /// After `<|start|>`.
    Role,
    /// After `<|channel|>`.
    Channel,
    /// After `<|constrain|>`.
    Constraint,
    /// After `<|message|>`.
    Whole,
}

/// A header while it is read. Places are those of the message's markup.
#[derive(Debug, Default)]
pub(crate) struct Header {
    part: Part,
    /// Where the part starts.
    start: usize,
    channel: Option<Channel>,
    recipient: Option<Range<usize>>,
}

/// What a part's text says; `None` if it is none that the part may have.
struct Said {
    /// Whether the part may end here.
    is_whole: bool,
    channel: Option<Channel>,
    /// Where in the text the recipient stands.
    recipient: Option<Range<usize>>,
}

impl Header {
    pub(crate) fn channel(&self) -> Option<Channel> {
        self.channel
    }

    /// Where in the markup the recipient stands, if there is one.
    pub(crate) fn recipient(&self) -> Option<Range<usize>> {
        self.recipient.clone()
    }

    /// Takes the next lexeme, all of it.
    pub(crate) fn take(&mut self, lexeme: Lexeme<'_>, markup: &mut Markup) -> Result<(), TagError> {
        match lexeme {
            Lexeme::Tag(tag) => self.take_tag(tag, markup),
            Lexeme::Text(text) => {
                for c in text.chars() {
                    let at = markup.len();
                    markup.push(c.encode_utf8(&mut [0; 4]));
                    if at >= HEADER_BYTES_MAX || self.said(markup).is_none() {
                        return Err(self.wrong(at, markup));
                    }
                }
                Ok(())
            }
        }
    }

    fn take_tag(&mut self, tag: &str, markup: &mut Markup) -> Result<(), TagError> {
        let at = markup.len();
        let said = self.said(markup);
        let text = markup.since(self.start);
        // A blank may only announce a constraint, and ` json` stands for one.
        let (blank, json) = (text.ends_with(' '), text.ends_with(" json"));
        let part = match (self.part, tag) {
            (Part::AfterRole, START) if at == self.start => Some(Part::Role),
            (Part::AfterRole | Part::Role, CHANNEL) => Some(Part::Channel),
            (Part::Channel, CONSTRAIN) if !json => Some(Part::Constraint),
            (Part::Channel, MESSAGE) if !blank => Some(Part::Whole),
            (Part::Constraint, MESSAGE) => Some(Part::Whole),
            _ => None,
        };
        markup.push(tag);
        let said = said.filter(|said| said.is_whole || part == Some(Part::Role));
        let (Some(part), Some(said)) = (part, said) else {
            return Err(self.wrong(at, markup));
        };
        if let Some(range) = said.recipient {
            let range = self.start + range.start..self.start + range.end;
            if self.recipient.replace(range).is_some() {
                return Err(self.wrong(at, markup));
            }
        }
        self.channel = said.channel.or(self.channel);
        self.part = part;
        self.start = markup.len();
        Ok(())
    }

    fn said(&self, markup: &Markup) -> Option<Said> {
        let text = markup.since(self.start);
        match self.part {
            Part::AfterRole => recipient(text, 0, None),
            Part::Role => match text.strip_prefix("assistant") {
                Some(rest) => recipient(rest, text.len() - rest.len(), None),
                None => "assistant".starts_with(text).then_some(Said {
                    is_whole: false,
                    channel: None,
                    recipient: None,
                }),
            },
            Part::Channel => channel(text),
            Part::Constraint => (!text.contains(is_blank)).then_some(Said {
                is_whole: !text.is_empty(),
                channel: None,
                recipient: None,
            }),
            Part::Whole => None,
        }
    }

    /// What stands at `at`, the last thing in the markup, is wrong there.
    fn wrong(&self, at: usize, markup: &Markup) -> TagError {
        let expected = match self.part {
            Part::AfterRole if at == self.start => "` to=`, `<|start|>` or `<|channel|>`",
            Part::AfterRole | Part::Role => "`assistant`, maybe ` to=` and a name, `<|channel|>`",
            Part::Channel => {
                "`analysis`, `commentary` or `final`, maybe ` to=` and a name, `<|message|>`"
            }
            Part::Constraint => "a word, `<|message|>`",
            Part::Whole => "a message",
        };
        markup.error(TagErrorKind::BadMessageHeader, at, expected.into())
    }
}

/// Reads the channel part: a channel, a recipient, and what announces or stands for a constraint.
fn channel(text: &str) -> Option<Said> {
    for (name, channel) in Channel::ALL {
        if let Some(rest) = text.strip_prefix(name) {
            return recipient(rest, name.len(), Some(channel));
        }
    }
    let begun = Channel::ALL.iter().any(|(name, _)| name.starts_with(text));
    begun.then_some(Said {
        is_whole: false,
        channel: None,
        recipient: None,
    })
}

/// Reads ` to=` and a name, if they are there; after a channel also a blank, or ` json`.
fn recipient(text: &str, offset: usize, channel: Option<Channel>) -> Option<Said> {
    const TO: &str = " to=";
    let (recipient, rest) = match text.strip_prefix(TO) {
        Some(name) => {
            let end = name.find(is_blank).unwrap_or(name.len());
            let start = offset + TO.len();
            (Some(start..start + end), &name[end..])
        }
        None => (None, text),
    };
    let is_named = recipient.as_ref().is_none_or(|range| !range.is_empty());
    let is_partial_to = recipient.is_none() && TO.starts_with(rest);
    let ends = match channel {
        Some(_) => ["", " ", " json"].contains(&rest),
        None => rest.is_empty(),
    };
    let fits = ends || is_partial_to || (channel.is_some() && " json".starts_with(rest));
    fits.then_some(Said {
        is_whole: ends && is_named,
        channel,
        recipient,
    })
}
