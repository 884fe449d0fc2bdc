//! Pictures of a run: each row beside its goal, and how costs grow with the ledger.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;

use crate::row::{Goal, Row};

const WIDTH: u32 = 1_000;
const LINE: u32 = 34;
const TOP: u32 = 60;
const LEFT: i32 = 520;
const MET: RGBColor = RGBColor(46, 125, 50);
const MISSED: RGBColor = RGBColor(198, 40, 40);

/// How much of its goal each row uses, on a logarithmic scale; the line at 1 is the goal.
///
/// # Errors
/// The file cannot be written.
pub fn goals(rows: &[Row], path: &Path) -> Result<()> {
    let shown: Vec<(&Row, f64)> = rows.iter().filter_map(|row| used(row).map(|used| (row, used))).collect();
    let height = TOP + LINE * u32::try_from(shown.len())? + 20;
    let area = SVGBackend::new(path, (WIDTH, height)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let title = "part of the goal that is used (1 = the goal; left of it is better)";
    area.draw(&Text::new(title, (20, 18), ("sans-serif", 17))).map_err(failed)?;
    for (line, (row, used)) in (0_i32..).zip(&shown) {
        draw(&area, line, row, *used)?;
    }
    let middle = LEFT + 240;
    let bottom = i32::try_from(height)? - 10;
    area.draw(&PathElement::new(vec![(middle, 50), (middle, bottom)], BLACK.stroke_width(1))).map_err(failed)?;
    area.present().map_err(failed)
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, line: i32, row: &Row, used: f64) -> Result<()> {
    let y = 60 + line * 34;
    let colour = if row.met { MET } else { MISSED };
    let name: String = format!("{} / {}", row.name, row.against).chars().take(78).collect();
    area.draw(&Text::new(name, (20, y), ("sans-serif", 13))).map_err(failed)?;
    // A factor of 100 either way fills the picture.
    #[expect(clippy::cast_possible_truncation, reason = "clamped to the picture")]
    let offset = (used.log10().clamp(-2.0, 2.0) * 120.0) as i32;
    let middle = LEFT + 240;
    let (from, to) = (middle.min(middle + offset), middle.max(middle + offset).max(middle + 1));
    area.draw(&Rectangle::new([(from, y), (to, y + 14)], colour.filled())).map_err(failed)?;
    area.draw(&Text::new(format!("{used:.2}"), (to + 6, y), ("sans-serif", 12))).map_err(failed)
}

fn used(row: &Row) -> Option<f64> {
    match row.goal {
        Goal::AtMost(most) => Some(row.ratio.max(0.001) / most),
        Goal::AtLeast(least) | Goal::Above(least) => Some(least / row.ratio),
        Goal::None => None,
    }
}

/// One line of a growth plot: what it is, and its value at each size.
#[derive(Debug)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// Size of the ledger in effects, and the cost as a multiple of the first one.
    pub points: Vec<(f64, f64)>,
}

/// Costs against the number of effects in a ledger, as multiples of the smallest.
///
/// # Errors
/// The file cannot be written.
pub fn growth(lines: &[Line], path: &Path) -> Result<()> {
    let points = || lines.iter().flat_map(|line| line.points.iter());
    let (least, most) = points().fold((f64::MAX, 1.0_f64), |(least, most), (x, _)| (least.min(*x), most.max(*x)));
    let highest = points().fold(1.6_f64, |highest, (_, y)| highest.max(*y));
    let area = SVGBackend::new(path, (WIDTH, 480)).into_drawing_area();
    area.fill(&WHITE).map_err(failed)?;
    let mut chart = ChartBuilder::on(&area)
        .caption("cost as a multiple of the smallest ledger's; goal 1.5", ("sans-serif", 17))
        .margin(16)
        .x_label_area_size(40)
        .y_label_area_size(50)
        .build_cartesian_2d((least..most).log_scale(), 0.0..highest * 1.1)
        .map_err(failed)?;
    chart.configure_mesh().x_desc("effects in the ledger").y_desc("×").draw().map_err(failed)?;
    for (index, line) in lines.iter().enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let drawn = LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)).point_size(3);
        let series = chart.draw_series(drawn).map_err(failed)?;
        series.label(&line.name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], colour));
    }
    chart.configure_series_labels().background_style(WHITE).border_style(BLACK).draw().map_err(failed)?;
    area.present().map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("a picture cannot be drawn: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Spread;

    #[test]
    fn pictures_are_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let rows = [Row::new("p", "a", "b", Goal::AtMost(1.3), Spread::of(&[1.2]))];
        goals(&rows, &folder.path().join("goals.svg")).unwrap();
        let line = Line { name: "append".to_owned(), points: vec![(1e4, 1.0), (1e5, 1.1), (1e7, 1.4)] };
        growth(&[line], &folder.path().join("growth.svg")).unwrap();
        for name in ["goals.svg", "growth.svg"] {
            assert!(std::fs::read_to_string(folder.path().join(name)).unwrap().contains("</svg>"));
        }
    }
}
