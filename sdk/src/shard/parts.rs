//! Creates the dicts of samples, like a given one: of its class, with its attributes.

use std::cell::RefCell;

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString, PyTuple};

/// Number of extensions whose texts are cached.
const MAX_RETAINED_TEXTS: usize = 16;

/// Creates dicts without running Python code, so that a sample costs little more than its bytes.
pub(crate) struct Parts<'py> {
    py: Python<'py>,
    /// `dict.__new__` and the class. `None`: plain dicts.
    class: Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>,
    /// Attributes that all dicts get.
    attributes: Vec<(Bound<'py, PyString>, Bound<'py, PyAny>)>,
    /// The attribute for the sample's key.
    key: Option<Bound<'py, PyString>>,
    extensions: RefCell<Vec<(String, Bound<'py, PyString>)>>,
}

impl<'py> Parts<'py> {
    /// For plain dicts.
    pub(crate) fn plain(py: Python<'py>) -> Self {
        let (attributes, extensions) = (Vec::new(), RefCell::default());
        Self { py, class: None, attributes, key: None, extensions }
    }

    /// For dicts like this one: those of a class with `__slots__` get the values of its slots,
    /// except `key`, which gets the key of the sample.
    pub(crate) fn like(like: &Bound<'py, PyDict>) -> PyResult<Self> {
        let py = like.py();
        let mut parts = Self::plain(py);
        let class = like.get_type();
        if class.is(py.get_type::<PyDict>()) {
            return Ok(parts);
        }
        let new = class.getattr(intern!(py, "__new__"))?;
        let slots: Vec<Bound<'py, PyString>> = match class.getattr_opt(intern!(py, "__slots__"))? {
            None => Vec::new(),
            Some(slots) => match slots.cast_into::<PyString>() {
                Ok(only) => vec![only],
                Err(e) => {
                    let slots = e.into_inner().try_iter()?;
                    slots.map(|slot| Ok(slot?.cast_into()?)).collect::<PyResult<_>>()?
                }
            },
        };
        for slot in slots {
            if slot == "key" {
                parts.key = Some(slot);
            } else {
                let value = like.getattr(&slot)?;
                parts.attributes.push((slot, value));
            }
        }
        parts.class = Some((new, class.into_any()));
        Ok(parts)
    }

    /// The dict of one sample.
    pub(crate) fn of(
        &self,
        key: &Bound<'py, PyString>,
        sample: Vec<(String, Vec<u8>)>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let made = match &self.class {
            None => PyDict::new(self.py),
            Some((new, class)) => {
                let arguments = PyTuple::new(self.py, [class])?;
                new.call1(arguments)?.cast_into::<PyDict>()?
            }
        };
        for (name, value) in &self.attributes {
            made.setattr(name, value)?;
        }
        if let Some(name) = &self.key {
            made.setattr(name, key)?;
        }
        for (extension, data) in sample {
            made.set_item(self.extension(extension), PyBytes::new(self.py, &data))?;
        }
        Ok(made)
    }

    fn extension(&self, text: String) -> Bound<'py, PyString> {
        let mut kept = self.extensions.borrow_mut();
        if let Some((_, known)) = kept.iter().find(|(known, _)| *known == text) {
            return known.clone();
        }
        let made = PyString::new(self.py, &text);
        if kept.len() < MAX_RETAINED_TEXTS {
            kept.push((text, made.clone()));
        }
        made
    }
}
