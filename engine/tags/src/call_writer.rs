//! Says a call whose arguments are at hand as pieces of JSON text.
//! It must never say anything of a call before its end under whole delivery.

use alloc::string::String;

use crate::call::Setting;
use crate::event::{Delivery, Sink};

/// A call of an offered tool while its arguments arrive.
pub(crate) struct CallWriter {
    name: String,
    index: u32,
    delivery: Delivery,
    /// Text of the arguments that waits for the call's end.
    held: String,
}

impl CallWriter {
    /// The call starts.
    pub(crate) fn begin(name: &str, setting: &mut Setting<'_, '_>) -> CallWriter {
        if setting.delivery == Delivery::Eager {
            setting.sink.begin(setting.index, name);
        }
        CallWriter {
            name: name.into(),
            index: setting.index,
            delivery: setting.delivery,
            held: String::new(),
        }
    }

    /// The next piece of the arguments' JSON text.
    pub(crate) fn write(&mut self, text: &str, sink: &mut Sink<'_>) {
        match self.delivery {
            Delivery::Eager => sink.arguments(self.index, text.into()),
            Delivery::Whole => self.held.push_str(text),
        }
    }

    /// The call is whole.
    pub(crate) fn end(&mut self, sink: &mut Sink<'_>) {
        if self.delivery == Delivery::Whole {
            sink.begin(self.index, &self.name);
            sink.arguments(self.index, core::mem::take(&mut self.held));
        }
        sink.end(self.index);
    }
}
