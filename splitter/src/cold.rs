//! Groups of the pages that no trace touched: by neighbourhood, for want of anything better.

use pagein_image::{MAX_FRAME_PAGES, NEIGHBOURHOOD, PageNo};

/// Groups of pages far from everything touched have so many times more pages. They are rarely demanded, and so often make up most of a
/// program that groups of the same size would make its index, which goes over the link early in a run, a third longer and
/// more (biome, node).
const FAR: u32 = 2;

/// Groups `pages`, ascending, of which no trace touched any, beside the `touched` ones; at most `group_pages` in one near a touched page.
///
/// First come those that lie in the same neighbourhood as a touched page, which are demanded more often, then the others: in the order of
/// the object `whole`. A group is what is left of an aligned block of the file. So what is between touched pages comes in
/// smaller groups than what is far from them: where a request brings one group (1 Mbit/s x 20 ms) a job that was not recorded makes a fifth
/// more of them for a fifth fewer bytes and is done sooner; where it brings several, nothing changes (`docs/measurements.md`).
pub(crate) fn by_neighbourhood(pages: &[PageNo], touched: &[PageNo], group_pages: u32) -> Vec<Vec<PageNo>> {
    if touched.is_empty() {
        return blocks(pages, group_pages);
    }
    let last = pages.iter().chain(touched).max().map_or(0, |page| page.0);
    let mut is_near = vec![false; (last / NEIGHBOURHOOD) as usize + 1];
    for page in touched {
        is_near[(page.0 / NEIGHBOURHOOD) as usize] = true;
    }
    let (near, far): (Vec<PageNo>, Vec<PageNo>) =
        pages.iter().partition(|page| is_near[(page.0 / NEIGHBOURHOOD) as usize]);
    let far_pages = group_pages.saturating_mul(FAR).min(MAX_FRAME_PAGES);
    [blocks(&near, group_pages), blocks(&far, far_pages)].concat()
}

/// Groups what lies in the same aligned block of `size` pages.
fn blocks(pages: &[PageNo], size: u32) -> Vec<Vec<PageNo>> {
    pages.chunk_by(|a, b| a.0 / size == b.0 / size).map(<[PageNo]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pages: impl IntoIterator<Item = u32>) -> Vec<PageNo> {
        pages.into_iter().map(PageNo).collect()
    }

    #[test]
    fn groups_are_aligned_blocks_without_the_touched_pages_and_longer_far_from_them() {
        let touched = [2, 9, 140];
        let rest = numbers((0..200).filter(|page| !touched.contains(page)));
        let groups = by_neighbourhood(&rest, &numbers(touched), 8);
        assert_eq!(groups[0], numbers([0, 1, 3, 4, 5, 6, 7]));
        assert_eq!(groups[1], numbers([8, 10, 11, 12, 13, 14, 15]));
        assert_eq!(groups[8], numbers(128..136), "the neighbourhood of 0 to 63, then that of 128 to 191");
        assert_eq!(groups[16], numbers(64..80), "then the others, in groups of 16");
        assert_eq!(groups.last(), Some(&numbers(192..200)));
        assert_eq!(groups.concat().len(), rest.len());
    }

    #[test]
    fn without_anything_touched_all_is_alike() {
        let groups = by_neighbourhood(&numbers(0..20), &[], 8);
        assert_eq!(groups, [numbers(0..8), numbers(8..16), numbers(16..20)]);
    }

    #[test]
    fn the_longest_groups_are_within_the_format() {
        let groups = by_neighbourhood(&numbers(1..20_000), &numbers([0]), MAX_FRAME_PAGES);
        assert!(groups.iter().all(|group| group.len() <= MAX_FRAME_PAGES as usize));
    }
}
