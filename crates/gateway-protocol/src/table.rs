//! Lists for people: rows below a header.

use crate::shown::visible;

/// Renders rows below a header, in columns as wide as their widest cell. A column without a text in any row is left out; without rows
/// there is nothing.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows
        .into_iter()
        .map(|row| row.map(|cell| visible(&cell)))
        .collect();
    let length = |text: &str| text.chars().count();
    let widest = |column: usize| rows.iter().map(|row| length(&row[column])).max();
    let columns: Vec<(usize, usize)> = (0..N)
        .filter_map(|column| Some((column, widest(column).filter(|width| *width > 0)?)))
        .map(|(column, width)| (column, width.max(length(header[column]))))
        .collect();
    let line = |cells: [&str; N]| {
        let cells = columns
            .iter()
            .map(|(column, width)| format!("{:<width$}", cells[*column]));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    let below: String = rows
        .iter()
        .map(|row| line(row.each_ref().map(String::as_str)))
        .collect();
    match rows.is_empty() {
        true => String::new(),
        false => line(header) + &below,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_cells_and_no_cell_controls_a_terminal() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned);
        let rows = [row(["a", "", "ü\n"]), row(["longer", "", ""])];
        let expected = "ID      NAME\na       ü\\u{a}\nlonger\n";
        assert_eq!(table(["ID", "OWNER", "NAME"], rows), expected);
        assert_eq!(table(["ID"], []), "");
    }
}
